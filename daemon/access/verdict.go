package access

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
)

// RightToLock is the right of a Verdict to take a lock.
const RightToLock = config.RightLock

// Verdict says whether a user has a right on a lock, and why.
type Verdict struct {
	Right   string // "lock", "inspect" or "admin"
	Allowed bool
	Why     string // for people: the rule, or that there is none
}

// Verdicts returns for each right whether the user, by name or number, has it on a lock.
// It uses the groups that a login gives now; a running process keeps the groups that it was
// started with. The error says that there is no such user, or that no lock can have
// that name.
func Verdicts(cfg *config.Config, account, lock string) ([]Verdict, error) {
	if err := ipc.CheckName(lock); err != nil {
		return nil, err
	}
	who, err := requesterNamed(account)
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(config.AllRights))
	for i, right := range config.AllRights {
		verdicts[i] = verdict(cfg, who, right, lock)
	}
	return verdicts, nil
}

func verdict(cfg *config.Config, requester Requester, right, lock string) Verdict {
	if cfg.Access == nil {
		if right == config.RightAdmin {
			return Verdict{right, requester.UID == 0, "without access rules only root and the user that redlockd runs as may"}
		}
		return Verdict{right, true, "without access rules everybody who can open the socket may"}
	}
	if rule := ruleFor(cfg.Access, requester, right, lock); rule != nil {
		return Verdict{right, true, fmt.Sprintf("by rule %q", rule.Name)}
	}
	return Verdict{right, false, fmt.Sprintf("by no access rule of %d", len(cfg.Access.Rules))}
}

// requesterNamed returns the user with the groups that a login gives now. A number
// without an account is in no group.
func requesterNamed(account string) (Requester, error) {
	if id, isNumber := config.AccountID(account); isNumber {
		found, err := user.LookupId(account)
		if err != nil {
			return Requester{UID: id}, nil
		}
		return requesterOf(found)
	}
	found, err := user.Lookup(account)
	if errors.As(err, new(user.UnknownUserError)) {
		return Requester{}, fmt.Errorf("this host has no user %q (write one that only LDAP or the like knows as a number)", account)
	}
	if err != nil {
		return Requester{}, err
	}
	return requesterOf(found)
}

func requesterOf(found *user.User) (requester Requester, err error) {
	if requester.UID, err = strconv.Atoi(found.Uid); err != nil {
		return requester, err
	}
	groups, err := found.GroupIds()
	if err != nil {
		return requester, fmt.Errorf("the groups of %s: %w", found.Username, err)
	}
	for _, group := range groups {
		gid, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return requester, fmt.Errorf("the groups of %s: %w", found.Username, err)
		}
		requester.Groups = append(requester.Groups, uint32(gid))
	}
	return requester, nil
}
