package access

import (
	"slices"

	"github.com/redlockd/redlockd/daemon/config"
)

// everyLock is the pattern that matches every name.
const everyLock = "**"

// Requester is a client as the kernel recorded it when it connected.
type Requester struct {
	UID    int      // UnknownUser: no rule applies
	Groups []uint32 // of the process when it connected
	User   string   // the name of UID, for error texts
}

// ruleFor returns the first rule that gives a right on a lock, or nil.
func ruleFor(rules *config.Access, requester Requester, right, name string) *config.Rule {
	return findRule(rules, requester, right, func(r *config.Rule) bool {
		return slices.ContainsFunc(r.Locks, func(pattern string) bool { return matchPattern(pattern, name) })
	})
}

// ruleForAllLocks returns the first rule that gives a right on every lock, or nil.
func ruleForAllLocks(rules *config.Access, requester Requester, right string) *config.Rule {
	return findRule(rules, requester, right, func(r *config.Rule) bool { return slices.Contains(r.Locks, everyLock) })
}

// ruleForAnyLock returns the first rule that gives a right on any lock, or nil.
func ruleForAnyLock(rules *config.Access, requester Requester, right string) *config.Rule {
	return findRule(rules, requester, right, func(*config.Rule) bool { return true })
}

func findRule(rules *config.Access, requester Requester, right string, matches func(*config.Rule) bool) *config.Rule {
	for i := range rules.Rules {
		if r := &rules.Rules[i]; appliesTo(r, requester) && slices.Contains(r.Allow, right) && matches(r) {
			return r
		}
	}
	return nil
}

func appliesTo(r *config.Rule, requester Requester) bool {
	return slices.Contains(r.UIDs, requester.UID) ||
		slices.ContainsFunc(requester.Groups, func(gid uint32) bool { return slices.Contains(r.GIDs, int(gid)) })
}
