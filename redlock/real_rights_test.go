package redlock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// A user that lacks rights is told all of them at once, whatever it may do already, and with the
// command that gives them: the node is refused, and ready after that command. The first user may do
// nothing but log in.
func TestRealMissingRights(t *testing.T) {
	const all = "+ping +info +time +client|id +client|kill +script|load +evalsha +set +get +del +pttl +exists +pexpire +pexpireat " +
		"+hget +hmget +hset +hgetall +zadd +zrange +zrem +zscore +zcount +zrank +publish"
	for name, c := range map[string]struct{ has, lacks string }{
		"nothing":       {"-@all", all},
		"no scripts":    {"~* &* +@all -evalsha -script", "+script|load +evalsha"},
		"no connection": {"~* &* +@all -client -info", "+info +client|id +client|kill"},
		"no own keys":   {"~redlock:* &* +@all", "~redlockd:*"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			server := s.all[0]
			s.tell(server, append([]string{"ACL", "SETUSER", "locks", "on", ">secret"}, strings.Fields(c.has)...)...)
			h := s.openHost(everywhere, func(o *redlock.Options) {
				o.Nodes = []redlock.Node{redlock.RedisNode(redlock.NodeOptions{
					Name: "a", Address: server.Addr(), Username: "locks", Password: func() (string, error) { return "secret", nil },
				})}
			})
			node := h.awaits("a", redlock.NodeRefused)
			missing := new(redlock.RightsError)
			if !errors.As(node.Reason, &missing) || !slices.Equal(missing.Missing, strings.Fields(c.lacks)) {
				t.Fatalf("the reason is %v, want that it lacks %s", node.Reason, c.lacks)
			}
			_, fix, _ := strings.Cut(node.Reason.Error(), "; fix: ")
			fix, _, _ = strings.Cut(fix, " (")
			if !strings.HasPrefix(fix, "ACL SETUSER locks ") {
				t.Fatalf("the fix is %q", fix)
			}
			s.tell(server, strings.Fields(fix)...)
			h.awaits("a", redlock.NodeReady)
			h.pair("x")
			h.eventually("the node calls waiters", func() bool { return h.of("a").Calls })
		})
	}
}
