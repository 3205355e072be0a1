package access

import (
	"slices"
	"strings"

	"github.com/redlockd/redlockd/daemon/config"
)

// HiddenLock replaces, in an error, the name of a lock that the client may not know.
const HiddenLock = "another lock"

// View is what one client may see of the locks of others.
type View struct {
	Rules     *config.Access // nil: everything
	Requester Requester
}

// VisibleNames returns the lock names of user uid that LIST shows to the client. If uid is the
// client's own user, it shows all, otherwise the ones that the client may inspect. It is nil if
// there are none.
func (v View) VisibleNames(uid int, names []string) []string {
	if v.Rules == nil || v.Requester.UID != UnknownUser && v.Requester.UID == uid {
		return names
	}
	return filter(names, func(name string) bool { return ruleFor(v.Rules, v.Requester, config.RightInspect, name) != nil })
}

// MayInspect reports whether the client may see who holds a lock, on any host.
func (v View) MayInspect(name string) bool {
	return v.Rules == nil || ruleFor(v.Rules, v.Requester, config.RightInspect, name) != nil
}

// PermitListAll returns why the client may not list the locks of all hosts, or nil. The client needs
// the right to inspect some lock, and sees only the locks that it may inspect.
func (v View) PermitListAll() error {
	if v.Rules == nil || ruleForAnyLock(v.Rules, v.Requester, config.RightInspect) != nil {
		return nil
	}
	return denied(v.Rules, v.Requester, "LIST all=yes", config.RightInspect)
}

// KnowsName reports whether the client has any right on a lock. Then it may learn the
// name and the holder.
func (v View) KnowsName(name string) bool {
	return v.Rules == nil || slices.ContainsFunc(config.AllRights, func(right string) bool {
		return ruleFor(v.Rules, v.Requester, right, name) != nil
	})
}

// Label joins the names that the client knows, for an error.
func (v View) Label(names []string) string {
	known := filter(names, v.KnowsName)
	if known == nil {
		return HiddenLock
	}
	return strings.Join(known, ",")
}

// Name returns the name if the client knows it, else [HiddenLock].
func (v View) Name(name string) string {
	if v.KnowsName(name) {
		return name
	}
	return HiddenLock
}

func filter(names []string, keep func(string) bool) (kept []string) {
	for _, name := range names {
		if keep(name) {
			kept = append(kept, name)
		}
	}
	return kept
}
