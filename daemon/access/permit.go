package access

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
)

// ErrDenied is the error of a request that the access rules do not allow.
var ErrDenied = errors.New("not allowed")

// Permit returns why the rules do not allow a request, or nil. A lease that the
// client holds needs no right: the client can always check, extend and release it.
func Permit(rules *config.Access, requester Requester, verb ipc.Verb, names []string) error {
	if rules == nil {
		isOperators := verb == ipc.VerbForce || verb == ipc.VerbAdmit || verb == ipc.VerbNodes
		if !isOperators || requester.UID == 0 || requester.UID == os.Getuid() {
			return nil
		}
		return fmt.Errorf("%v: %w for %s: only root and the daemon's own user may, because the config has no access rules", verb, ErrDenied, requester.User)
	}
	switch verb {
	case ipc.VerbLock, ipc.VerbTry:
		return permitNames(rules, requester, verb, names, config.RightLock)
	case ipc.VerbWho:
		return permitNames(rules, requester, verb, names, config.RightInspect)
	case ipc.VerbForce:
		return permitNames(rules, requester, verb, names, config.RightAdmin)
	case ipc.VerbAdmit:
		return permitForAll(rules, requester, verb)
	case ipc.VerbNodes:
		return permitForAll(rules, requester, verb)
	case ipc.VerbStatus:
		// It needs any right on any lock. A NOQUORUM error shows such a user as much.
		for _, right := range config.AllRights {
			if ruleForAnyLock(rules, requester, right) != nil {
				return nil
			}
		}
		return fmt.Errorf("STATUS: %w for %s: no access rule of %d is for this user", ErrDenied, requester.User, len(rules.Rules))
	}
	return nil
}

// permitNames requires the right for each name. Different rules may give it.
func permitNames(rules *config.Access, requester Requester, verb ipc.Verb, names []string, right string) error {
	var refused []string
	for _, name := range names {
		if ruleFor(rules, requester, right, name) == nil {
			refused = append(refused, name)
		}
	}
	if refused == nil {
		return nil
	}
	return denied(rules, requester, fmt.Sprintf("%v %s", verb, strings.Join(refused, ",")), right)
}

// permitForAll requires a rule for every lock: a node that votes too early can lose any of them, and
// hosts without the new list of nodes get none.
func permitForAll(rules *config.Access, requester Requester, verb ipc.Verb) error {
	if ruleForAllLocks(rules, requester, config.RightAdmin) != nil {
		return nil
	}
	return denied(rules, requester, verb.String()+" (it concerns every lock, so the rule must have locks = [\"**\"])", config.RightAdmin)
}

func denied(rules *config.Access, requester Requester, what, right string) error {
	return fmt.Errorf("%s: %w for %s: no access rule of %d allows %q", what, ErrDenied, requester.User, len(rules.Rules), right)
}
