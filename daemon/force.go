package daemon

import (
	"errors"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// force is a FORCE under way: a lock that is taken from whoever holds it.
type force struct {
	s    *session
	call *ipc.Call
}

func (s *session) force(call *ipc.Call) ipc.Work {
	if err := s.mayAdminister(call.Verb); err != nil {
		return s.refuse(call, err)
	}
	return &force{s, call}
}

// Run answers OK also where nobody held the lock: held=0.
func (f *force) Run() {
	name := f.call.Names[0]
	holders, err := f.s.d.nodes.Force(f.call.Context(), name)
	var who redlock.Holding
	if len(holders) > 0 {
		who = holders[0]
	}
	free := errors.Is(err, redlock.ErrNotHeld)
	f.s.d.log.Warn("FORCE", "lock", name, "user", f.s.user, "pid", f.s.pid,
		"holder", who.Holder.User, "host", who.Holder.Host, "holder's pid", who.Holder.PID, "error", orNone(err))
	if err != nil && !free {
		f.s.refuse(f.call, err)
		return
	}
	r := ok(f.call).Str("lock", name)
	if free {
		f.call.Reply(r.Int("held", 0).Say("nobody held it"))
		return
	}
	f.s.d.meter.forced()
	holderFields(r.Int("held", int64(who.Held)), who.Holder)
	f.call.Reply(r.Say("the holder is told, but may be at work until it notices"))
}
