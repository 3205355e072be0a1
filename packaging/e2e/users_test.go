//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rulesByName are about accounts of the host, by their names.
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

// accountsOfTest in no particular order.
var accountsOfTest = []string{byName, byPrimary, byOther, inNone}

// may says who may do what with which lock.
var may = map[string]map[string]string{
	"named/a":     {byName: "lock inspect"},
	"named/a/b":   {},
	"team/a/b":    {byPrimary: "lock"},
	"team/shared": {byPrimary: "lock", byOther: "lock inspect admin"},
	"also/a":      {byOther: "lock inspect admin"},
	"nobody's":    {},
}

// For real accounts, the daemon and validate both follow the rules.
func TestAccountsOfRules(t *testing.T) {
	makeAccounts(t)
	a := newArena(t, rulesByName)
	for _, name := range accountsOfTest {
		g := a.login(t, name)
		for lock, rights := range may {
			a.tries(g, name, lock, rights[name])
			a.validates(name, lock, rights[name])
		}
	}
}

// tries lets a user send every command for a lock that nobody holds.
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

// validates has redlockd say what the user may.
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

// hasLine tells whether a line begins with these words.
func saysOf(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.Join(strings.Fields(line), " ")+" ", strings.Join(words, " ")+" ") {
			return true
		}
	}
	return false
}

// A user cannot get another user's lease by guessing its id, nor by its name, its
// process or similar words; nor can the user see it.
func TestAccountsGuessLeases(t *testing.T) {
	makeAccounts(t)
	a := newArena(t, rulesByName)
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
		thief.ask("RESUME team/shared owner=o lease="+lease, "ERR NOTHELD lock=team/shared ") // it is another user's
		thief.ask("UNLOCK team/shared owner=o", "ERR NOTHELD ")
		thief.ask("CHECK team/pid", "ERR NOTHELD ")
		thief.ask("TRY team/pid hold=pid", "ERR DENIED ")
		thief.write("LIST\n")
		if name == byOther { // who may inspect it, and sees no id
			if line := thief.comes("- lock=team/shared "); strings.Contains(line, lease) {
				t.Errorf("LIST tells the lease's id: %s", line)
			}
			thief.comes("OK n=1")
		} else {
			thief.comes("OK n=0")
		}
	}
	owner.ask("CHECK team/shared owner=o", "OK lock=team/shared")
	owner.ask("CHECK team/pid", "OK lock=team/pid")
}

// guesses are ids that look like these.
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

// Groups are those of the moment of connecting, as everywhere; who is meant by the names
// in the rules is looked up at the start and at SIGHUP. What is held stays held.
func TestAccountsChange(t *testing.T) {
	makeAccounts(t)
	a := newArena(t, rulesByName)
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

	admin(t, "groupmod", "--gid", "48213", otherGroup) // another group of that name
	admin(t, "usermod", "--groups", otherGroup, inNone)
	a.login(t, inNone).ask("TRY also/a", "ERR DENIED ")
	a.reload(t)
	a.tries(a.login(t, inNone), inNone, "also/a", "lock inspect admin")
	holder.ask("TRY also/a", "ERR DENIED ") // its group is the earlier one
	holder.ask("CHECK also/held", "OK lock=also/held")
	holder.ask("UNLOCK also/held", "OK lock=also/held")
}

// reload makes the daemon reload its config.
func (a *arena) reload(t *testing.T) {
	t.Helper()
	a.daemon.signal(syscall.SIGHUP)
	awaitLog(a.daemon, "config reloaded")
}
