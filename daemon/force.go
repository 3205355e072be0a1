package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// force is a FORCE under way: a lock that is taken from whoever holds it.
type force struct {
	s    *session
	call *server.Call
}

// force is not begun again after a restart: who holds the lock now may have got it after
// it was taken away.
func (s *session) force(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: WHO tells who holds it now", call.Names[0], errUnknown))
	}
	return &force{s, call}
}

// Run answers OK also where nobody held the lock: n=0. What of one of several
// names is taken from is lost in all of them.
func (f *force) Run() {
	name := f.call.Names[0]
	lists := f.s.d.leases.lists(name) // of now: whom it is taken from may be forgotten at once
	ours := f.s.d.leases.of(name)
	forced, err := f.s.d.nodes.Force(f.call.Context(), name)
	free := errors.Is(err, redlock.ErrNotHeld)
	f.log(forced, err)
	if err != nil && !free {
		f.s.refuse(f.call, err)
		return
	}
	if free {
		f.disprove(ours)
	}
	f.s.d.recorder.Forced(len(forced))
	also := f.also(forced, lists)
	r := ok(f.call).Str("lock", name).Int("n", int64(len(forced)))
	if also != nil {
		r.Strs("also", also...)
	}
	switch len(forced) {
	case 0:
		r.Say("nobody held it")
	case 1:
		holderFields(r.Int("held", int64(forced[0].Held)), forced[0].Holder)
		r.Say(f.forcedText(forced[0].Holder) + alsoText(also))
	default:
		r.Say("the holders are told, but may be at work until they notice" + alsoText(also))
	}
	f.call.Reply(r)
}

// disprove ends leases of ours that no quorum shows: they were taken away elsewhere, or by
// a daemon before this one that was killed in it. Without that who has one is not told, and
// has the lock here, until it is extended, which some never are: an extension finds out.
func (f *force) disprove(ours []*holding) {
	for _, h := range ours {
		if err := h.lease.Extend(f.call.Context(), 0); errors.Is(err, redlock.ErrNoQuorum) {
			return // they are told at their deadlines
		}
	}
}

// also are the other names of those from whom one of several was taken, in so far as
// they are of this daemon, and the caller may know them.
func (f *force) also(forced []redlock.Holding, lists map[string][]string) (also []string) {
	view := f.s.view()
	for i := range forced {
		for _, name := range lists[forced[i].ID()] {
			if name == f.call.Names[0] || slices.Contains(also, name) || !view.Knows(name) {
				continue
			}
			if also = append(also, name); len(alsoField(also).AppendTo(nil)) > maxAlso {
				return also[:len(also)-1]
			}
		}
	}
	return also
}

// maxAlso is how many bytes of also= there are at most: as many as a LOCK can name.
const maxAlso = ipc.MaxLine * 3 / 4

func alsoField(names []string) *ipc.Response { return new(ipc.Response).Strs("also", names...) }

func alsoText(also []string) string {
	if also == nil {
		return ""
	}
	return "; what else it held by the same LOCK (also=) is lost as well, and stays taken until it has given that back, at most until its deadline"
}

// of are the leases of a lock.
func (r *registry) of(name string) []*holding {
	return slices.DeleteFunc(r.all(), func(h *holding) bool { return !slices.Contains(h.names(), name) })
}

// lists are the names of the leases of several that one name is among, by lease id.
func (r *registry) lists(name string) map[string][]string {
	lists := map[string][]string{}
	for _, h := range r.all() {
		if names := h.names(); len(names) > 1 && slices.Contains(names, name) {
			lists[h.lease.ID()] = names
		}
	}
	return lists
}

// forcedText says what becomes of a holder: who is no daemon is told nothing.
func (f *force) forcedText(h redlock.Holder) string {
	switch {
	case !h.Known():
		return "another Redlock client held it, whom nobody tells, and who may be at work until it looks at its key"
	case h.Host != f.s.d.host:
		return "the holder is told when its host extends the lease next, or with hold=ttl at its deadline, and may be at work until it notices"
	}
	return "the holder is told, but may be at work until it notices"
}

// log names everybody whom the lock was taken from.
func (f *force) log(forced []redlock.Holding, err error) {
	log := f.s.d.log.With("lock", f.call.Names[0], "user", f.s.user, "pid", f.s.pid)
	log.Warn("FORCE", "holders", len(forced), "error", orNone(err))
	for _, h := range forced {
		if !h.Holder.Known() {
			log.Warn("taken away by FORCE", "holder", "another Redlock client, which is not told")
			continue
		}
		log.Warn("taken away by FORCE", "holder", h.Holder.User, "host", h.Holder.Host, "holder's pid", h.Holder.PID)
	}
}
