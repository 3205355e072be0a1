package node

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// The ACL in NODES has the same rights as the fix that the lane proposes.
func TestRightsAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../packaging/docs/NODES.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^user redlockd on >PASSWORD (.*)$`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("the page has no ACL")
	}
	documented := slices.DeleteFunc(strings.Fields(line[1]), func(word string) bool { return word == "-@all" })
	l := &Lane{prefix: "redlock:"}
	proposed := strings.Fields(l.acl())
	slices.Sort(documented)
	slices.Sort(proposed)
	if !slices.Equal(documented, proposed) {
		t.Errorf("NODES has\n%q, and the fix\n%q", documented, proposed)
	}
}

// Each version of Redis refuses with other words.
func TestRefusalOf(t *testing.T) {
	for text, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'get' command or its subcommand":      "command",
		"NOPERM this user has no permissions to run the 'client|id' command":                  "command",
		"NOPERM User locks has no permissions to run the 'get' command":                       "command",
		"NOPERM this user has no permissions to access one of the keys used as arguments":     "key",
		"NOPERM No permissions to access a key":                                               "key",
		"NOPERM this user has no permissions to access one of the channels used as arguments": "channel",
		"NOPERM No permissions to access a channel":                                           "channel",
		"ERR unknown command 'CLIENT', with arguments that are not shown here":                "unknown",
		"ERR wrong number of arguments for 'hset' command":                                    "",
		"NOSCRIPT No matching script. Please use EVAL.":                                       "",
		"OOM command not allowed when used memory > 'maxmemory'.":                             "",
	} {
		if got := refusalOf(redis.ServerError(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
