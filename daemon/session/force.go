package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// force takes a lock from all of its holders. It answers OK with n=0 if nobody held the lock. A lease
// of several names that loses one of them is lost entirely. It refuses to repeat a FORCE that a restart
// interrupted: the present holder may have got the lock after the first attempt.
func (s *session) force(call *server.Call) server.Work {
	d, name := s.host, call.Names[0]
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: WHO shows who holds it now", name, errOutcomeUnknown))
	}
	return workFunc(func() {
		lists := d.namesByID(name) // read before FORCE, which may make the daemon forget leases
		ours := slices.DeleteFunc(d.allLeases(), func(h *heldLease) bool { return !slices.Contains(h.Waiter.Names, name) })
		forced, err := d.Nodes.Force(call.Context(), name)
		free := errors.Is(err, redlock.ErrNotHeld)
		for i := range forced {
			forced[i].Holder = d.currentHolder(&forced[i], d.onNodes(&forced[i]))
		}
		s.logForce(name, forced, err)
		if err != nil && !free {
			s.refuse(call, err)
			return
		}
		if free {
			loseRevoked(call.Context(), ours)
		}
		d.recorder.Forced(len(forced))
		also := s.otherNames(name, forced, lists)
		r := call.OK().Str("lock", name).Int("n", int64(len(forced)))
		if also != nil {
			r.Strs("also", also...)
		}
		switch len(forced) {
		case 0:
			r.Say("nobody held it")
		case 1:
			holderFields(r.Int("held", int64(forced[0].Held)), forced[0].Holder)
			r.Say(d.forcedText(forced[0].Holder) + alsoText(also))
		default:
			r.Say("the holders are notified, but may continue to work until then" + alsoText(also))
		}
		call.Reply(r)
	})
}

// loseRevoked ends leases of this daemon that no quorum has any more. Another host took them away,
// or an earlier daemon that was killed during its FORCE. Otherwise their holders would learn of it
// only at the next extension, and leases with hold=ttl are never extended.
func loseRevoked(ctx context.Context, leases []*heldLease) {
	for _, h := range leases {
		if err := h.lease.Extend(ctx, 0); errors.Is(err, redlock.ErrNoQuorum) {
			return // the holders get LOST before their deadlines
		}
	}
}

// otherNames returns the other names of the leases that FORCE ended, as far as this daemon knows
// them and the client may see them.
func (s *session) otherNames(forcedName string, forced []redlock.Holding, lists map[string][]string) (also []string) {
	view := s.view()
	for i := range forced {
		for _, name := range lists[forced[i].ID()] {
			if name == forcedName || slices.Contains(also, name) || !view.KnowsName(name) {
				continue
			}
			if also = append(also, name); len(new(ipc.Response).Strs("also", also...).AppendTo(nil)) > maxAlso {
				return also[:len(also)-1]
			}
		}
	}
	return also
}

// maxAlso bounds also=, in bytes. It is as much as one LOCK can name.
const maxAlso = ipc.MaxLine * 3 / 4

func alsoText(also []string) string {
	if also == nil {
		return ""
	}
	return "; other names of the same LOCK (also=) are lost as well, and stay taken until their holder has released them, at most until its deadline"
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
func (d *Host) forcedText(h redlock.Holder) string {
	switch {
	case !h.Known():
		return "another Redlock client held it; it is not notified, and may continue to work until it reads its key"
	case h.Host != d.hostname:
		return "the holder is notified when its host next extends the lease, or with hold=ttl at its deadline, and may continue to work until then"
	}
	return "the holder is notified, but may continue to work until it notices"
}

// logForce logs each holder that lost the lock.
func (s *session) logForce(name string, forced []redlock.Holding, err error) {
	log := s.host.Log.With("lock", name, "user", s.user, "pid", s.pid)
	problem := any("none")
	if err != nil {
		problem = err
	}
	log.Warn("FORCE", "holders", len(forced), "error", problem)
	for _, h := range forced {
		if !h.Holder.Known() {
			log.Warn("taken away by FORCE", "holder", "another Redlock client, which is not notified")
			continue
		}
		log.Warn("taken away by FORCE", "holder", h.Holder.User, "host", h.Holder.Host, "holder_pid", h.Holder.PID)
	}
}

// admit ends quarantines early: all means all nodes in quarantine. It refuses to repeat an ADMIT that a
// restart interrupted: the node may be in another quarantine by now, which the user has not seen.
func (s *session) admit(call *server.Call) server.Work {
	wanted := call.Words[0]
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: STATUS shows which nodes are in quarantine", wanted, errOutcomeUnknown))
	}
	return workFunc(func() {
		var names []string
		for _, node := range s.host.Nodes.Status().Nodes {
			if node.Name == wanted || wanted == "all" && node.State == redlock.NodeQuarantined {
				names = append(names, node.Name)
			}
		}
		if len(names) == 0 && wanted != "all" {
			s.refuse(call, badOption("ADMIT %s: there is no such node; STATUS lists them", wanted))
			return
		}
		for _, name := range names {
			if err := s.admitNode(call, name); err != nil {
				s.refuse(call, err)
				return
			}
		}
		call.Reply(call.OK().Int("n", int64(len(names))))
	})
}

func (s *session) admitNode(call *server.Call, node string) error {
	err := s.host.Nodes.Admit(call.Context(), node)
	switch {
	case err == nil:
		s.host.Log.Warn("quarantine ended early by ADMIT", "node", node, "user", s.user, "pid", s.pid)
	case call.Words[0] != "all" || !errors.Is(err, redlock.ErrNotQuarantined): // it may just have ended by itself
		s.host.Log.Info("ADMIT failed", "node", node, "user", s.user, "pid", s.pid, "error", err)
		return err
	}
	call.Line(new(ipc.Response).Line(call.Tag).Str("node", node).Str("state", string(redlock.NodeReady)))
	return nil
}
