package config

import (
	"os/user"
	"strconv"
	"strings"
	"testing"
)

func TestWarnOfNobody(t *testing.T) {
	cfg := mustLoad(t, nodesSource(3)+`access {
  rule "x" {
    users = ["65534"]
    groups = ["0", "65534"]
    locks = ["**"]
    allow = ["lock"]
  }
}`)
	if len(cfg.Warnings) != 2 || !strings.Contains(cfg.Warnings[0], `:8:13: rule "x".users: 65534 (nobody)`) ||
		!strings.Contains(cfg.Warnings[1], `:9:14: rule "x".groups: 65534 (nobody)`) {
		t.Errorf("got the warnings %q", cfg.Warnings)
	}
}

// UserOfRule and GroupOfRule return the id that an account has on this host.
func TestAccountsOfRules(t *testing.T) {
	for id := 1; id < 1000; id++ {
		number := strconv.Itoa(id)
		account, err := user.LookupId(number)
		group, none := user.LookupGroupId(number)
		if err != nil || none != nil {
			continue
		}
		if got, err := UserOfRule(account.Username); err != nil || got != id {
			t.Errorf("user %s: got id %d, %v; want %d", account.Username, got, err, id)
		}
		if got, err := GroupOfRule(group.Name); err != nil || got != id {
			t.Errorf("group %s: got id %d, %v; want %d", group.Name, got, err, id)
		}
		return
	}
	t.Skip("this host has no user and group with the same id")
}
