package daemon

import (
	"context"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// changeLog is what the log has about a change of the nodes. Only watchChange uses it.
type changeLog struct {
	step  redlock.ChangeStep
	since time.Duration // BootTime at which the step began, or was last said to be stuck
}

// stuckAfter is how long a step that needs no operator takes at most, beyond the quarantine or the wait
// in it. Then the log says what it waits for, and again after each such time.
const stuckAfter = 2 * time.Minute

// watchChange logs how far a change of the nodes is, and records that this host's list was replaced, until ctx
// ends. The caller waits for it.
func (d *daemon) watchChange(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-second.C:
		}
		if d.Journal.ListReplaced(d.Nodes.ReplacedList()); d.isChanging {
			d.logChange(d.Nodes.Status())
		}
	}
}

// logChange logs each step of the change of the nodes, a step that is stuck, and the loss of the quorum
// and its return.
func (d *daemon) logChange(status redlock.Status) {
	d.quorate.mu.Lock()
	lost, back, lasted := d.quorate.changeLocked(status.Spare() >= 0, d.Clock())
	d.quorate.mu.Unlock()
	d.logQuorumNews(lost, back, lasted, "ready", status.Ready, "nodes", len(status.Nodes))
	c := status.Change
	if c == nil {
		return
	}
	facts := []any{"step", c.Step, "behind", strings.Join(c.Behind, ","), "missing", strings.Join(c.Missing, ","), "next", c.Next(nil)}
	switch news := d.changeLog.update(c.Step, status.MaxTTL, d.Clock()); news {
	case newStep:
		d.Log.Info("change of the nodes", facts...)
	case stuckStep:
		d.Log.Warn("change of the nodes is stuck", facts...)
	}
}

type changeNews int

const (
	noNews changeNews = iota
	newStep
	stuckStep
)

// update records the step of the change, and returns what to log.
func (l *changeLog) update(step redlock.ChangeStep, maxTTL, now time.Duration) changeNews {
	waits := step == redlock.ChangeBegun || step == redlock.ChangeDone // for an operator
	switch {
	case l.step != step:
		l.step, l.since = step, now
		return newStep
	case !waits && now-l.since >= maxTTL+stuckAfter:
		l.since = now
		return stuckStep
	}
	return noNews
}
