package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// everyLock is the pattern that matches every name.
const everyLock = "**"

// caller is who asks, as far as rules go by it.
type caller struct {
	uid    int
	groups []uint32 // of the process when it connected
}

func callerOf(peer server.Peer) caller {
	if !peer.Known {
		return caller{uid: unknownUser} // no rule is for it
	}
	return caller{int(peer.UID), append(peer.Groups, peer.GID)}
}

// allowing is the first rule that gives a right on a lock; nil: there is none.
func (c *AccessConfig) allowing(who caller, right, name string) *AccessRule {
	return c.find(who, right, func(r *AccessRule) bool { return r.covers(name) })
}

// allowingAll is the first rule that gives a right on every lock there is.
func (c *AccessConfig) allowingAll(who caller, right string) *AccessRule {
	return c.find(who, right, func(r *AccessRule) bool { return slices.Contains(r.Locks, everyLock) })
}

// allowingAny is the first rule that gives a right on whatever lock.
func (c *AccessConfig) allowingAny(who caller, right string) *AccessRule {
	return c.find(who, right, func(*AccessRule) bool { return true })
}

func (c *AccessConfig) find(who caller, right string, covers func(*AccessRule) bool) *AccessRule {
	for i := range c.Rules {
		if r := &c.Rules[i]; r.isFor(who) && slices.Contains(r.Allow, right) && covers(r) {
			return r
		}
	}
	return nil
}

func (r *AccessRule) isFor(who caller) bool {
	return slices.Contains(r.uids, who.uid) ||
		slices.ContainsFunc(who.groups, func(gid uint32) bool { return slices.Contains(r.gids, int(gid)) })
}

func (r *AccessRule) covers(name string) bool {
	return slices.ContainsFunc(r.Locks, func(pattern string) bool { return matchLock(pattern, name) })
}

// permit says why a request is not allowed; nil: it is. What one holds can always
// be asked about, extended and given back: who knows its lease has the right to.
func (s *session) permit(call *server.Call) error {
	rules := s.d.access.Load()
	if rules == nil {
		return s.permitWithoutRules(call.Verb)
	}
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return s.permitNames(rules, call, rightLock)
	case ipc.VerbWho:
		return s.permitNames(rules, call, rightInspect)
	case ipc.VerbForce:
		return s.permitNames(rules, call, rightAdmin)
	case ipc.VerbAdmit:
		return s.permitAdmit(rules)
	case ipc.VerbStatus:
		return s.permitStatus(rules)
	}
	return nil
}

// deny answers what permit says.
func (s *session) deny(call *server.Call, err error) server.Work {
	s.d.logDenied(s, call.Verb, err)
	return s.refuse(call, err)
}

// permitWithoutRules: everybody who can connect may do everything, but for what
// ends others' locks.
func (s *session) permitWithoutRules(verb ipc.Verb) error {
	if verb != ipc.VerbForce && verb != ipc.VerbAdmit || s.runsDaemon() {
		return nil
	}
	return fmt.Errorf("%v: %w for %s: only root and the daemon's own user may, as the config has no access rules", verb, errDenied, s.user)
}

// permitNames wants the right for each of the names, not by one rule for all.
func (s *session) permitNames(rules *AccessConfig, call *server.Call, right string) error {
	var denied []string
	for _, name := range call.Names {
		if rules.allowing(s.caller, right, name) == nil {
			denied = append(denied, name)
		}
	}
	if denied == nil {
		return nil
	}
	return s.denied(rules, fmt.Sprintf("%v %s", call.Verb, strings.Join(denied, ",")), right)
}

// permitAdmit: a node that is admitted too early may let go of whatever lock.
func (s *session) permitAdmit(rules *AccessConfig) error {
	if rules.allowingAll(s.caller, rightAdmin) != nil {
		return nil
	}
	return s.denied(rules, "ADMIT (it concerns every lock, so the rule must have locks = [\"**\"])", rightAdmin)
}

// permitStatus: who may do anything may know whether it can be done now, and which
// node is in the way; NOQUORUM says as much.
func (s *session) permitStatus(rules *AccessConfig) error {
	for _, right := range allRights {
		if rules.allowingAny(s.caller, right) != nil {
			return nil
		}
	}
	return fmt.Errorf("STATUS: %w for %s: no access rule of %d is for this user", errDenied, s.user, len(rules.Rules))
}

func (s *session) denied(rules *AccessConfig, what, right string) error {
	return fmt.Errorf("%s: %w for %s: no access rule of %d allows %q", what, errDenied, s.user, len(rules.Rules), right)
}

// String is for the log.
func (c *AccessConfig) String() string {
	if c == nil {
		return "everything, to everybody who can connect"
	}
	return fmt.Sprintf("by %d rules", len(c.Rules))
}
