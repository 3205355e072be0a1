package redlock_test

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// database is a node in another database of a server.
func database(name string, server *redlocktest.Server, number int) redlock.Node {
	return redlock.RedisNode(redlock.NodeOptions{Name: name, Address: server.Addr(), Database: number})
}

// A node can be a database of a server: its locks, epoch and counters are there, and a FLUSHDB of this
// database is noticed. A FLUSHDB of another database is not. Its address shows the number.
func TestRealDatabase(t *testing.T) {
	s := newSite(t, 1)
	server := s.all[0]
	h := s.newHost(maxTTL(steady), func(o *redlock.Options) { o.Nodes = []redlock.Node{database("a", server, 2)} })
	want(t, "address", h.of("a").Address, server.Addr()+"/2")
	in := func(number, command string) int64 {
		return s.tell(server, "EVAL", "redis.call('SELECT', ARGV[1]) "+command, "2", "redlock:x", nodeKey, number).Int
	}
	const exists = "return redis.call('EXISTS', KEYS[1], KEYS[2])"
	l := h.take(redlock.Request{Name: "x", TTL: steady})
	want(t, "keys in database 2", in("2", exists), 2)
	want(t, "locks in database 0", in("0", "return redis.call('EXISTS', KEYS[1])"), 0)
	h.release(l)
	h.forget()
	in("0", "redis.call('FLUSHDB') return 1")
	before := s.looks(server)
	h.eventually("the host looks at the node again", func() bool { return s.looks(server) >= before+2 })
	h.wantNoQuarantine("a flushed database of others")
	in("2", "redis.call('FLUSHDB') return 1")
	h.wentThrough("a", redlock.NodeQuarantined)
	h.awaits("a", redlock.NodeReady)
}

// Two databases of a server are one node, and a server that lacks the database says so.
func TestRealDatabasesOfOneServer(t *testing.T) {
	s := newSite(t, 3)
	h := s.openHost(everywhere, func(o *redlock.Options) {
		o.Nodes = []redlock.Node{database("a", s.all[0], 0), database("b", s.all[0], 1), database("c", s.all[1], 99)}
	})
	refused := h.awaits("b", redlock.NodeRefused)
	want(t, "it names the other node", strings.Contains(refused.Reason.Error(), `that is node "a" already`), true)
	h.awaits("a", redlock.NodeReady)
	h.eventually("there is no such database", func() bool {
		node := h.of("c")
		return node.State == redlock.NodeDown && node.Reason != nil && strings.Contains(node.Reason.Error(), "correct database in the config")
	})
}
