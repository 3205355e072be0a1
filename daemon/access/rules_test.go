package access

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
)

func rulesOf(t *testing.T, rules string) *config.Access {
	t.Helper()
	return mustLoad(t, nodesSource(3)+"access {\n"+rules+"\n}\n").Access
}

// testRules are the rules of most tests. They name users by number, which need no account.
const testRules = `
rule "web" {
  users = ["4001"]
  locks = ["web/*"]
  allow = ["lock", "inspect"]
}
rule "batch" {
  groups = ["4102"]
  locks  = ["batch/**", "web/shared"]
  allow  = ["lock"]
}
rule "watch" {
  users = ["4003"]
  locks = ["web/*", "batch/a"]
  allow = ["inspect"]
}
rule "ops" {
  users = ["4004"]
  locks = ["**"]
  allow = ["admin"]
}
rule "web-ops" {
  users = ["4001", "4005"]
  locks = ["web/**"]
  allow = ["admin"]
}`

func TestRuleFor(t *testing.T) {
	rules := rulesOf(t, testRules)
	for _, c := range []struct {
		who         Requester
		right, name string
		want        string // the rule, or ""
	}{
		{Requester{UID: 4001}, config.RightLock, "web/a", "web"},
		{Requester{UID: 4001}, config.RightLock, "web/a/b", ""},
		{Requester{UID: 4001}, config.RightAdmin, "web/a/b", "web-ops"}, // any rule can give the right
		{Requester{UID: 4001}, config.RightLock, "batch/a", ""},
		{Requester{UID: 4102}, config.RightLock, "batch/a", ""}, // 4102 is a group, not a user
		{Requester{UID: 1, Groups: []uint32{4001}}, config.RightLock, "web/a", ""},
		{Requester{UID: 1, Groups: []uint32{1, 4102}}, config.RightLock, "batch/a/b", "batch"},
		{Requester{UID: 1, Groups: []uint32{4102}}, config.RightInspect, "batch/a/b", ""},
		{Requester{UID: 4003}, config.RightInspect, "batch/a", "watch"},
		{Requester{UID: 4003}, config.RightLock, "batch/a", ""},
		{Requester{UID: 4004}, config.RightAdmin, "what/ever", "ops"},
		{Requester{UID: 4004}, config.RightLock, "what/ever", ""}, // admin includes nothing
		{Requester{UID: 0}, config.RightAdmin, "web/a", ""},       // root needs a rule, too
		{Requester{UID: UnknownUser}, config.RightLock, "web/a", ""},
	} {
		got := ""
		if rule := ruleFor(rules, c.who, c.right, c.name); rule != nil {
			got = rule.Name
		}
		if got != c.want {
			t.Errorf("%+v, %s, %s: got rule %q, want %q", c.who, c.right, c.name, got, c.want)
		}
	}
}

// If the kernel reports no user for a client, no rule applies to it. No config can name that uid.
func TestUnknownPeer(t *testing.T) {
	if _, err := config.Parse([]byte(nodesSource(3)+`access {
  rule "x" {
    users = ["-1"]
    locks = ["**"]
    allow = ["lock"]
  }
}`), "redlockd.hcl"); err == nil || !strings.Contains(err.Error(), `found "-1"`) {
		t.Errorf("users = [\"-1\"]: got %v, want a fault", err)
	}
	rules := rulesOf(t, "rule \"x\" {\nusers=[\"0\", \"4294967294\"]\ngroups=[\"0\"]\nlocks=[\"**\"]\nallow=[\"lock\"]\n}")
	if ruleForAnyLock(rules, Requester{UID: UnknownUser}, config.RightLock) != nil {
		t.Error("a rule applies to the unknown user")
	}
	if ruleForAnyLock(rules, Requester{Groups: []uint32{0}}, config.RightLock) == nil {
		t.Error("no rule applies to root")
	}
}

func TestVerdicts(t *testing.T) {
	cfg := mustLoad(t, nodesSource(3)+"access {\n"+testRules+`
rule "roots" {
  groups = ["0"]
  locks  = ["root"]
  allow  = ["lock"]
}
}`)
	open := mustLoad(t, nodesSource(3))
	for _, c := range []struct {
		cfg      *config.Config
		as, lock string
		want     string
	}{
		{cfg, "4001", "web/a", `lock:by rule "web" inspect:by rule "web" admin:by rule "web-ops"`},
		{cfg, "4003", "web/a", `-lock:by no access rule of 6 inspect:by rule "watch" -admin:by no access rule of 6`},
		{cfg, "root", "root", `lock:by rule "roots" -inspect:by no access rule of 6 -admin:by no access rule of 6`},
		{cfg, "0", "root", `lock:by rule "roots" -inspect:by no access rule of 6 -admin:by no access rule of 6`},
		{open, "4001", "x", `lock:without access rules everybody who can open the socket may inspect:without access rules everybody who can open the socket may -admin:without access rules only root and the user that redlockd runs as may`},
		{open, "root", "x", `lock:without access rules everybody who can open the socket may inspect:without access rules everybody who can open the socket may admin:without access rules only root and the user that redlockd runs as may`},
	} {
		verdicts, err := Verdicts(c.cfg, c.as, c.lock)
		if err != nil {
			t.Errorf("%s, %s: %v", c.as, c.lock, err)
		}
		var got []string
		for _, v := range verdicts {
			got = append(got, map[bool]string{false: "-"}[v.Allowed]+v.Right+":"+v.Why)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s, %s:\ngot  %s\nwant %s", c.as, c.lock, got, c.want)
		}
	}
	for _, c := range [][2]string{{"no-such-user", "x"}, {"root", ""}, {"root", "redlockd:x"}} {
		if verdicts, err := Verdicts(cfg, c[0], c[1]); err == nil {
			t.Errorf("%q: got %v, want an error", c, verdicts)
		}
	}
}

// ADMIT concerns every lock, so it needs the pattern **. Some patterns look as wide but are not.
func TestRuleForAllLocks(t *testing.T) {
	for locks, want := range map[string]bool{`"**"`: true, `"a", "**"`: true, `"*"`: false, `"x"`: false, `"**/*", "*"`: false, `"web/**"`: false} {
		rules := rulesOf(t, "rule \"x\" {\nusers=[\"4001\"]\nlocks=["+locks+"]\nallow=[\"admin\"]\n}")
		if got := ruleForAllLocks(rules, Requester{UID: 4001}, config.RightAdmin) != nil; got != want {
			t.Errorf("locks = [%s]: a rule for all locks: %v, want %v", locks, got, want)
		}
	}
}

// Without rules only root and the daemon's user may use FORCE and ADMIT.
func TestAccessWithoutRules(t *testing.T) {
	for verb, want := range map[ipc.Verb]bool{ipc.VerbForce: false, ipc.VerbAdmit: false, ipc.VerbNodes: false, ipc.VerbLock: true, ipc.VerbStatus: true} {
		if err := Permit(nil, Requester{UID: 4001}, verb, nil); (err == nil) != want {
			t.Errorf("%v: %v, want it allowed: %v", verb, err, want)
		}
	}
}

// A user with any right on any lock may use STATUS.
func TestAccessStatus(t *testing.T) {
	for right, want := range map[string]bool{config.RightLock: true, config.RightInspect: true, config.RightAdmin: true} {
		rules := rulesOf(t, "rule \"x\" {\nusers=[\"4001\"]\nlocks=[\"x\"]\nallow=[\""+right+"\"]\n}")
		for uid, allowed := range map[int]bool{4001: want, 4002: false} {
			if err := Permit(rules, Requester{UID: uid}, ipc.VerbStatus, nil); (err == nil) != allowed {
				t.Errorf("user %d, if 4001 has the right %s: %v", uid, right, err)
			}
		}
	}
}
