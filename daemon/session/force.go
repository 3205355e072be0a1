package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// forceWork is a FORCE under way: a lock that is taken from whoever holds it.
type forceWork struct {
	s    *session
	call *server.Call
}

// force does not repeat a FORCE that a restart interrupted: the present holder may have got
// the lock after the first attempt.
func (s *session) force(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: WHO tells who holds it now", call.Names[0], errUnknown))
	}
	return &forceWork{s, call}
}

// Run answers OK also where nobody held the lock: n=0. What of one of several
// names is taken from is lost in all of them.
func (f *forceWork) Run() {
	name := f.call.Names[0]
	lists := f.s.host.Leases.lists(name) // of now: whom it is taken from may be forgotten at once
	ours := f.s.host.Leases.of(name)
	forced, err := f.s.host.Nodes.Force(f.call.Context(), name)
	free := errors.Is(err, redlock.ErrNotHeld)
	f.log(forced, err)
	if err != nil && !free {
		f.s.refuse(f.call, err)
		return
	}
	if free {
		f.disprove(ours)
	}
	f.s.host.recorder.Forced(len(forced))
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
func (f *forceWork) disprove(ours []*heldLease) {
	for _, h := range ours {
		if err := h.lease.Extend(f.call.Context(), 0); errors.Is(err, redlock.ErrNoQuorum) {
			return // they are told at their deadlines
		}
	}
}

// also returns the other names of the LOCKs that lost their locks, as far as this daemon knows
// them and the client may see them.
func (f *forceWork) also(forced []redlock.Holding, lists map[string][]string) (also []string) {
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
func (r *leaseRegistry) of(name string) []*heldLease {
	return slices.DeleteFunc(r.all(), func(h *heldLease) bool { return !slices.Contains(h.names(), name) })
}

// lists are the names of the leases of several that one name is among, by lease id.
func (r *leaseRegistry) lists(name string) map[string][]string {
	lists := map[string][]string{}
	for _, h := range r.all() {
		if names := h.names(); len(names) > 1 && slices.Contains(names, name) {
			lists[h.lease.ID()] = names
		}
	}
	return lists
}

// forcedText says what becomes of a holder. Only daemons are told of the loss.
func (f *forceWork) forcedText(h redlock.Holder) string {
	switch {
	case !h.Known():
		return "another Redlock client held it, whom nobody tells, and who may be at work until it looks at its key"
	case h.Host != f.s.host.hostname:
		return "the holder is told when its host extends the lease next, or with hold=ttl at its deadline, and may be at work until it notices"
	}
	return "the holder is told, but may be at work until it notices"
}

// log names everybody whom the lock was taken from.
func (f *forceWork) log(forced []redlock.Holding, err error) {
	log := f.s.host.Log.With("lock", f.call.Names[0], "user", f.s.user, "pid", f.s.pid)
	log.Warn("FORCE", "holders", len(forced), "error", orNone(err))
	for _, h := range forced {
		if !h.Holder.Known() {
			log.Warn("taken away by FORCE", "holder", "another Redlock client, which is not told")
			continue
		}
		log.Warn("taken away by FORCE", "holder", h.Holder.User, "host", h.Holder.Host, "holder_pid", h.Holder.PID)
	}
}

// admitWork is an ADMIT under way: quarantines that end early.
type admitWork struct {
	s    *session
	call *server.Call
}

// admit is not begun again after a restart: the node may be in another quarantine by now,
// of which the caller knows nothing.
func (s *session) admit(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: STATUS tells which nodes are in quarantine", call.Words[0], errUnknown))
	}
	return &admitWork{s, call}
}

func (a *admitWork) Run() {
	nodes, err := a.nodes()
	for _, node := range nodes {
		if err = a.admit(node); err != nil {
			break
		}
	}
	if err != nil {
		a.s.refuse(a.call, err)
		return
	}
	a.call.Reply(ok(a.call).Int("n", int64(len(nodes))))
}

// nodes are those that are meant: all means all that are in quarantine.
func (a *admitWork) nodes() (names []string, err error) {
	wanted := a.call.Words[0]
	for _, node := range a.s.host.Nodes.Status().Nodes {
		if node.Name == wanted || wanted == "all" && node.State == redlock.NodeQuarantined {
			names = append(names, node.Name)
		}
	}
	if len(names) == 0 && wanted != "all" {
		return nil, badOption("ADMIT %s: there is no such node; STATUS lists them", wanted)
	}
	return names, nil
}

func (a *admitWork) admit(node string) error {
	err := a.s.host.Nodes.Admit(a.call.Context(), node)
	switch {
	case err == nil:
		a.s.host.Log.Warn("quarantine ended early by ADMIT", "node", node, "user", a.s.user, "pid", a.s.pid)
	case a.call.Words[0] != "all" || !errors.Is(err, redlock.ErrNotQuarantined): // it may just have ended by itself
		a.s.host.Log.Info("ADMIT failed", "node", node, "user", a.s.user, "pid", a.s.pid, "error", err)
		return err
	}
	a.call.Line(new(ipc.Response).Line(a.call.Tag).Str("node", node).Str("state", string(redlock.NodeReady)))
	return nil
}
