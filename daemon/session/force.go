package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// forceWork is a FORCE under way: it takes a lock from all of its holders.
type forceWork struct {
	s    *session
	call *server.Call
}

// force refuses to repeat a FORCE that a restart interrupted: the present holder may have got the
// lock after the first attempt.
func (s *session) force(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: WHO shows who holds it now", call.Names[0], errOutcomeUnknown))
	}
	return &forceWork{s, call}
}

// Run answers OK with n=0 if nobody held the lock. A lease of several names that loses one of them
// is lost entirely.
func (f *forceWork) Run() {
	name := f.call.Names[0]
	lists := f.s.host.namesByID(name) // read before FORCE, which may make the daemon forget leases
	ours := f.s.host.leasesOf(name)
	forced, err := f.s.host.Nodes.Force(f.call.Context(), name)
	free := errors.Is(err, redlock.ErrNotHeld)
	for i := range forced {
		forced[i].Holder = f.s.host.currentHolder(&forced[i], f.s.host.onNodes(&forced[i]))
	}
	f.log(forced, err)
	if err != nil && !free {
		f.s.refuse(f.call, err)
		return
	}
	if free {
		f.loseRevoked(ours)
	}
	f.s.host.recorder.Forced(len(forced))
	also := f.otherNames(forced, lists)
	r := f.call.OK().Str("lock", name).Int("n", int64(len(forced)))
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
		r.Say("the holders are notified, but may continue to work until then" + alsoText(also))
	}
	f.call.Reply(r)
}

// loseRevoked ends leases of this daemon that no quorum has any more. Another host took them away,
// or an earlier daemon that was killed during its FORCE. Otherwise their holders would learn of it
// only at the next extension, and leases with hold=ttl are never extended.
func (f *forceWork) loseRevoked(leases []*heldLease) {
	for _, h := range leases {
		if err := h.lease.Extend(f.call.Context(), 0); errors.Is(err, redlock.ErrNoQuorum) {
			return // the holders get LOST before their deadlines
		}
	}
}

// otherNames returns the other names of the leases that FORCE ended, as far as this daemon knows
// them and the client may see them.
func (f *forceWork) otherNames(forced []redlock.Holding, lists map[string][]string) (also []string) {
	view := f.s.view()
	for i := range forced {
		for _, name := range lists[forced[i].ID()] {
			if name == f.call.Names[0] || slices.Contains(also, name) || !view.KnowsName(name) {
				continue
			}
			if also = append(also, name); len(alsoField(also).AppendTo(nil)) > maxAlso {
				return also[:len(also)-1]
			}
		}
	}
	return also
}

// maxAlso bounds also=, in bytes. It is as much as one LOCK can name.
const maxAlso = ipc.MaxLine * 3 / 4

func alsoField(names []string) *ipc.Response { return new(ipc.Response).Strs("also", names...) }

func alsoText(also []string) string {
	if also == nil {
		return ""
	}
	return "; other names of the same LOCK (also=) are lost as well, and stay taken until their holder has released them, at most until its deadline"
}

// leasesOf returns the leases of a lock.
func (d *Host) leasesOf(name string) []*heldLease {
	return slices.DeleteFunc(d.allLeases(), func(h *heldLease) bool { return !slices.Contains(h.Waiter.Names, name) })
}

// namesByID returns the names of each lease of several names that has this one, by the ids that the
// nodes may show.
func (d *Host) namesByID(name string) map[string][]string {
	lists := map[string][]string{}
	for _, h := range d.allLeases() {
		if names := h.Waiter.Names; len(names) > 1 && slices.Contains(names, name) {
			lists[h.lease.TokenID()], lists[h.lease.ID()] = names, names // before an exchange of the token, and after it
		}
	}
	return lists
}

// forcedText returns what the holder will notice. Only a daemon reports the loss to its client.
func (f *forceWork) forcedText(h redlock.Holder) string {
	switch {
	case !h.Known():
		return "another Redlock client held it; it is not notified, and may continue to work until it reads its key"
	case h.Host != f.s.host.hostname:
		return "the holder is notified when its host next extends the lease, or with hold=ttl at its deadline, and may continue to work until then"
	}
	return "the holder is notified, but may continue to work until it notices"
}

// log logs each holder that lost the lock.
func (f *forceWork) log(forced []redlock.Holding, err error) {
	log := f.s.host.Log.With("lock", f.call.Names[0], "user", f.s.user, "pid", f.s.pid)
	log.Warn("FORCE", "holders", len(forced), "error", orNone(err))
	for _, h := range forced {
		if !h.Holder.Known() {
			log.Warn("taken away by FORCE", "holder", "another Redlock client, which is not notified")
			continue
		}
		log.Warn("taken away by FORCE", "holder", h.Holder.User, "host", h.Holder.Host, "holder_pid", h.Holder.PID)
	}
}

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}

// admitWork is an ADMIT under way: quarantines that end early.
type admitWork struct {
	s    *session
	call *server.Call
}

// admit refuses to repeat an ADMIT that a restart interrupted: the node may be in another quarantine
// by now, which the user has not seen.
func (s *session) admit(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: STATUS shows which nodes are in quarantine", call.Words[0], errOutcomeUnknown))
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
	a.call.Reply(a.call.OK().Int("n", int64(len(nodes))))
}

// nodes returns the nodes that the request names: all means all nodes in quarantine.
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
