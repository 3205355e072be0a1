package daemon

import (
	"errors"
	"fmt"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// force is a FORCE under way: a lock that is taken from whoever holds it.
type force struct {
	s    *session
	call *ipc.Call
}

// force is not begun again after a restart: who holds the lock now may have got it after
// it was taken away.
func (s *session) force(call *ipc.Call) ipc.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: WHO tells who holds it now", call.Names[0], errRestarted))
	}
	return &force{s, call}
}

// Run answers OK also where nobody held the lock: n=0. What of one of several
// names is taken from is lost in all of them.
func (f *force) Run() {
	name := f.call.Names[0]
	forced, err := f.s.d.nodes.Force(f.call.Context(), name)
	free := errors.Is(err, redlock.ErrNotHeld)
	f.log(forced, err)
	if err != nil && !free {
		f.s.refuse(f.call, err)
		return
	}
	f.s.d.meter.forced(len(forced))
	r := ok(f.call).Str("lock", name).Int("n", int64(len(forced)))
	switch len(forced) {
	case 0:
		r.Say("nobody held it")
	case 1:
		holderFields(r.Int("held", int64(forced[0].Held)), forced[0].Holder)
		r.Say("the holder is told, but may be at work until it notices")
	default:
		r.Say("the holders are told, but may be at work until they notice")
	}
	f.call.Reply(r)
}

// log names everybody whom the lock was taken from.
func (f *force) log(forced []redlock.Holding, err error) {
	log := f.s.d.log.With("lock", f.call.Names[0], "user", f.s.user, "pid", f.s.pid)
	log.Warn("FORCE", "holders", len(forced), "error", orNone(err))
	for _, h := range forced {
		log.Warn("taken away by FORCE", "holder", h.Holder.User, "host", h.Holder.Host, "holder's pid", h.Holder.PID)
	}
}
