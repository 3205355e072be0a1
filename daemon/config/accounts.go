package config

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
)

// The accounts of access rules are looked up once, when the config is read. A name that
// this host does not know is a fault, because the rule would apply to no user. A number needs no
// account.

// checkUser checks the name or number of a user.
func checkUser(name string) string { return checkRuleAccount(name, "user", UserOfRule) }

// checkGroup checks the name or number of a group.
func checkGroup(name string) string { return checkRuleAccount(name, "group", GroupOfRule) }

func checkRuleAccount(name, kind string, id func(string) (int, error)) string {
	if wanted := checkAccount(name); wanted != "" {
		return wanted
	}
	_, err := id(name)
	switch {
	case errors.Is(err, errNoAccount):
		return fmt.Sprintf("a %s of this host, or the number of one (a %s that only LDAP or the like knows needs its number)", kind, kind)
	case err != nil:
		return fmt.Sprintf("a %s that can be looked up, or its number (%v)", kind, err)
	}
	return ""
}

var errNoAccount = errors.New("no such account")

// UserOfRule returns the id of a user, by name or number.
func UserOfRule(name string) (int, error) {
	if id, ok := AccountID(name); ok {
		return id, nil
	}
	found, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return 0, errNoAccount
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Uid)
}

// GroupOfRule returns the id of a group, by name or number.
func GroupOfRule(name string) (int, error) {
	if id, ok := AccountID(name); ok {
		return id, nil
	}
	found, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		return 0, errNoAccount
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Gid)
}

// AccountID reads the number of an account. The largest 32-bit number means none.
func AccountID(name string) (id int, ok bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return int(n), err == nil && n < 1<<32-1
}

// accounts returns the ids of the names that exist. The others are faults already.
func accounts(names []string, id func(string) (int, error)) (ids []int) {
	for _, name := range names {
		if n, err := id(name); err == nil {
			ids = append(ids, n)
		}
	}
	return ids
}

// overflowID is the id that the kernel shows for a user or group that this user namespace
// does not have. By convention it is the id of the account nobody.
const overflowID = 65534

// warnOfNobody warns about a rule for overflowID: it applies to unknown users of containers.
func (r *reader) warnOfNobody(access *Access) {
	if access == nil {
		return
	}
	for _, rule := range access.Rules {
		for word, ids := range map[string][]int{"users": rule.UIDs, "groups": rule.GIDs} {
			for _, id := range ids {
				if id == overflowID {
					name := fmt.Sprintf("rule %q.%s", rule.Name, word)
					r.warnf(r.rangeOf(name), "%s: %d (nobody) is also the id here of every container user that this host does not know: the rule applies to them, too", name, id)
				}
			}
		}
	}
}
