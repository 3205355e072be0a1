package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// operator is somebody who forces locks away now and then, whoever holds them. It
// is there in some worlds only.
type operator struct {
	w      *world
	random *rand.Rand
	gap    time.Duration
}

func (w *world) startOperator(ctx context.Context) {
	o := &operator{w: w, random: w.plan.stream(streamOperator)}
	if o.gap = 20 * w.idle; oneIn(o.random, 2) {
		w.clients.Go(func() { o.run(ctx) })
	}
}

func (o *operator) run(ctx context.Context) {
	for o.w.work.Err() == nil {
		time.Sleep(below(o.random, o.gap))
		h := pick(o.random, o.w.hosts...)
		if q, _ := h.daemon(); q != nil {
			o.force(ctx, h, q, pick(o.random, o.w.locks...))
		}
	}
}

func (o *operator) force(ctx context.Context, h *host, q *redlock.Quorum, lock string) {
	holders, err := q.Force(ctx, lock)
	for _, holding := range holders {
		o.w.record.count("force")
		o.w.record.event(Event{Actor: h.name, What: "forced", Lock: lock, Note: "away from request " + strconv.Itoa(holding.Holder.PID)})
	}
	switch {
	case err == nil:
	case !errors.Is(err, redlock.ErrNotHeld):
		o.w.record.event(Event{Actor: h.name, What: "not forced", Lock: lock, Note: err.Error()})
	}
}
