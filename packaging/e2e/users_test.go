//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rulesByName are access rules with the names of accounts of the host.
const rulesByName = `access {
  rule "named" {
    users = ["` + byName + `"]
    locks = ["named/*"]
    allow = ["lock", "inspect"]
  }
  rule "team" {
    groups = ["` + primaryGroup + `"]
    locks  = ["team/**"]
    allow  = ["lock"]
  }
  rule "also" {
    groups = ["` + otherGroup + `"]
    locks  = ["also/*", "team/shared"]
    allow  = ["inspect", "admin", "lock"]
  }
}`

// accountsOfTest are the accounts, in no particular order.
var accountsOfTest = []string{byName, byPrimary, byOther, inNone}

// may has the rights of each account for each lock.
var may = map[string]map[string]string{
	"named/a":     {byName: "lock inspect"},
	"named/a/b":   {},
	"team/a/b":    {byPrimary: "lock"},
	"team/shared": {byPrimary: "lock", byOther: "lock inspect admin"},
	"also/a":      {byOther: "lock inspect admin"},
	"nobody's":    {},
}

// Access rules with names of accounts of the host. One test has all of it, because to create and remove
// accounts takes long.
func TestAccounts(t *testing.T) {
	makeAccounts(t)
	a := newArena(t, rulesByName)
	a.areOfRules(t)
	a.guessLeases(t)
	a.change(t)
}

// areOfRules: the daemon and redlockd validate both apply the rules to real accounts.
func (a *arena) areOfRules(t *testing.T) {
	t.Helper()
	for _, name := range accountsOfTest {
		g := a.login(t, name)
		for lock, rights := range may {
			a.tries(g, name, lock, rights[name])
			a.validates(name, lock, rights[name])
		}
	}
}

// tries sends every verb as a user, for a lock that no client holds.
func (h *host) tries(g *guest, name, lock, rights string) {
	h.t.Helper()
	denied := func(verb, right, granted string) {
		h.t.Helper()
		if strings.Contains(rights, right) {
			g.ask(verb+" "+lock, granted)
		} else if answer := g.ask(verb+" "+lock, "ERR DENIED lock="+lock+" "); !strings.Contains(answer, "not allowed for "+name+": ") {
			h.t.Errorf("%s %s as %s: %s, want that it names him", verb, lock, name, answer)
		}
	}
	denied("WHO", "inspect", "OK n=0")
	denied("FORCE", "admin", "OK lock="+lock+" n=0")
	denied("TRY", "lock", "OK lock="+lock+" ")
	if strings.Contains(rights, "lock") {
		g.ask("UNLOCK "+lock, "OK lock="+lock)
	}
	g.ask("ADMIT all", "ERR DENIED ")
}

// validates checks what redlockd validate says about the user's rights.
func (h *host) validates(name, lock, rights string) {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "redlockd"), "validate", "-config", h.config, "-as", name, "-lock", lock)
	output, err := combined(cmd)
	if mayLock := strings.Contains(rights, "lock"); mayLock != (err == nil) {
		h.t.Errorf("validate -as %s -lock %s: %v, want success: %v\n%s", name, lock, err, mayLock, output)
	}
	for _, right := range []string{"lock", "inspect", "admin"} {
		verdict := "denied"
		if strings.Contains(rights, right) {
			verdict = "allowed"
		}
		if !saysOf(string(output), right, verdict) {
			h.t.Errorf("validate -as %s -lock %s: want %s %s\n%s", name, lock, right, verdict, output)
		}
	}
}

// saysOf reports whether a line of text begins with these words.
func saysOf(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.Join(strings.Fields(line), " ")+" ", strings.Join(words, " ")+" ") {
			return true
		}
	}
	return false
}

// guessLeases: a user cannot get another user's lease by guessing its id, nor by its name, its process
// or similar words. The user cannot see the lease either.
func (a *arena) guessLeases(t *testing.T) {
	t.Helper()
	owner := a.login(t, byPrimary)
	lease := field(owner.ask("LOCK team/shared ttl=30s id=i owner=o", "OK lock=team/shared"), "lease")
	byPID := field(owner.ask("LOCK team/pid ttl=30s hold=pid", "OK lock=team/pid"), "lease")
	for _, name := range []string{byName, byOther, inNone} {
		thief := a.login(t, name)
		for _, id := range guesses(lease, byPID) {
			for _, verb := range []string{"UNLOCK", "CHECK", "EXTEND", "BEAT"} {
				thief.ask(verb+" lease="+id, "ERR NOTHELD ")
				thief.ask(verb+" team/shared lease="+id, "ERR NOTHELD lock=team/shared ")
			}
			thief.ask("RESUME team/shared owner=o lease="+id, "ERR NOTHELD lock=team/shared ")
		}
		thief.ask("RESUME team/shared owner=o lease="+lease, "ERR NOTHELD lock=team/shared ") // the lease belongs to another user
		thief.ask("UNLOCK team/shared owner=o", "ERR NOTHELD ")
		thief.ask("CHECK team/pid", "ERR NOTHELD ")
		thief.ask("TRY team/pid hold=pid", "ERR DENIED ")
		thief.write("LIST\n")
		if name == byOther { // this user may inspect the lock, but gets no id
			if line := thief.comes("- lock=team/shared "); strings.Contains(line, lease) {
				t.Errorf("LIST shows the lease's id: %s", line)
			}
			thief.comes("OK n=1")
		} else {
			thief.comes("OK n=0")
		}
	}
	owner.ask("CHECK team/shared owner=o", "OK lock=team/shared")
	owner.ask("CHECK team/pid", "OK lock=team/pid")
	owner.ask("UNLOCK team/shared owner=o", "OK lock=team/shared")
}

// guesses returns ids that are similar to lease and other.
func guesses(lease, other string) []string {
	last := byte('A')
	if strings.HasSuffix(lease, "A") {
		last = 'B'
	}
	return []string{
		lease[1:], lease[:len(lease)-1], lease + "A", lease[:len(lease)-1] + string(last), strings.ToLower(lease) + "x",
		lease[:len(lease)/2] + other[len(other)/2:], strings.Repeat("A", len(lease)), "0", "*",
	}
}

// change: a client's groups are those at the time of connecting. The daemon looks up the names in the
// rules at its start and at SIGHUP. Held locks stay held.
func (a *arena) change(t *testing.T) {
	t.Helper()
	before, holder := a.login(t, inNone), a.login(t, byOther)
	holder.ask("LOCK also/held", "OK lock=also/held")
	before.ask("TRY also/a", "ERR DENIED ")

	admin(t, "usermod", "--append", "--groups", otherGroup, inNone)
	a.reload(t)
	before.ask("TRY also/a", "ERR DENIED ")
	a.tries(a.login(t, inNone), inNone, "also/a", "lock inspect admin")
	a.validates(inNone, "also/a", "lock inspect admin")

	admin(t, "usermod", "--groups", "", inNone)
	a.reload(t)
	a.tries(a.login(t, inNone), inNone, "also/a", "")
	a.validates(inNone, "also/a", "")

	admin(t, "groupmod", "--gid", "48213", otherGroup) // another group with that name
	admin(t, "usermod", "--groups", otherGroup, inNone)
	a.login(t, inNone).ask("TRY also/a", "ERR DENIED ")
	a.reload(t)
	a.tries(a.login(t, inNone), inNone, "also/a", "lock inspect admin")
	holder.ask("TRY also/a", "ERR DENIED ") // this connection has the earlier group
	holder.ask("CHECK also/held", "OK lock=also/held")
	holder.ask("UNLOCK also/held", "OK lock=also/held")
}

// reload makes the daemon reload its config.
func (a *arena) reload(t *testing.T) {
	t.Helper()
	a.daemon.signal(syscall.SIGHUP)
	awaitLog(a.daemon, "config reloaded")
}
