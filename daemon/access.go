package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/daemon/config"
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

// ruleFor returns the first rule that gives a right on a lock, or nil.
func ruleFor(rules *config.Access, who caller, right, name string) *config.Rule {
	return findRule(rules, who, right, func(r *config.Rule) bool { return coversLock(r, name) })
}

// ruleForAllLocks returns the first rule that gives a right on every lock, or nil.
func ruleForAllLocks(rules *config.Access, who caller, right string) *config.Rule {
	return findRule(rules, who, right, func(r *config.Rule) bool { return slices.Contains(r.Locks, everyLock) })
}

// ruleForAnyLock returns the first rule that gives a right on any lock, or nil.
func ruleForAnyLock(rules *config.Access, who caller, right string) *config.Rule {
	return findRule(rules, who, right, func(*config.Rule) bool { return true })
}

func findRule(rules *config.Access, who caller, right string, matches func(*config.Rule) bool) *config.Rule {
	for i := range rules.Rules {
		if r := &rules.Rules[i]; appliesTo(r, who) && slices.Contains(r.Allow, right) && matches(r) {
			return r
		}
	}
	return nil
}

func appliesTo(r *config.Rule, who caller) bool {
	return slices.Contains(r.UIDs, who.uid) ||
		slices.ContainsFunc(who.groups, func(gid uint32) bool { return slices.Contains(r.GIDs, int(gid)) })
}

func coversLock(r *config.Rule, name string) bool {
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
		return s.permitNames(rules, call, config.RightLock)
	case ipc.VerbWho:
		return s.permitNames(rules, call, config.RightInspect)
	case ipc.VerbForce:
		return s.permitNames(rules, call, config.RightAdmin)
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
func (s *session) permitNames(rules *config.Access, call *server.Call, right string) error {
	var denied []string
	for _, name := range call.Names {
		if ruleFor(rules, s.caller, right, name) == nil {
			denied = append(denied, name)
		}
	}
	if denied == nil {
		return nil
	}
	return s.denied(rules, fmt.Sprintf("%v %s", call.Verb, strings.Join(denied, ",")), right)
}

// permitAdmit: a node that is admitted too early may let go of whatever lock.
func (s *session) permitAdmit(rules *config.Access) error {
	if ruleForAllLocks(rules, s.caller, config.RightAdmin) != nil {
		return nil
	}
	return s.denied(rules, "ADMIT (it concerns every lock, so the rule must have locks = [\"**\"])", config.RightAdmin)
}

// permitStatus: who may do anything may know whether it can be done now, and which
// node is in the way; NOQUORUM says as much.
func (s *session) permitStatus(rules *config.Access) error {
	for _, right := range config.AllRights {
		if ruleForAnyLock(rules, s.caller, right) != nil {
			return nil
		}
	}
	return fmt.Errorf("STATUS: %w for %s: no access rule of %d is for this user", errDenied, s.user, len(rules.Rules))
}

func (s *session) denied(rules *config.Access, what, right string) error {
	return fmt.Errorf("%s: %w for %s: no access rule of %d allows %q", what, errDenied, s.user, len(rules.Rules), right)
}
