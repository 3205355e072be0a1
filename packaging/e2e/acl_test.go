//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The rights in NODES.md suffice for locks of each kind, for waiters and for a durable node, on two
// hosts, also beside another Redlock client. The test begins with new nodes in quarantine and ends after a
// flushed node. It uses every listed right.
func TestPageRedisUser(t *testing.T) {
	t.Parallel() // mostly waits
	acl := redisUser(t)
	cluster := redlocktest.StartRedis(t, 3)
	for _, server := range cluster.Servers {
		setUser(t, server, acl)
	}
	durable := cluster.Servers[2]
	setUser(t, durable, durableUser(t))
	one, other := hostWithUser(t, cluster, durable), hostWithUser(t, cluster, durable)
	awaitReady(t, one, other)
	useKinds(t, one, other, "")
	waitForSlot(t, one, other)
	for _, server := range cluster.Servers { // as another Redlock client
		tell(t, server, "SET", "redlock:foreign", "its token", "PX", "500")
	}
	if err := acquire(t, one, redlock.Request{Name: "foreign"}).Release(within(t)); err != nil {
		t.Errorf("the release of a lock that another client had: %v", err)
	}
	if _, err := one.Scan(within(t), ""); err != nil {
		t.Errorf("SCAN: %v", err)
	}
	held := acquire(t, one, redlock.Request{Name: "forced"})
	if _, err := other.Force(within(t), "forced"); err != nil {
		t.Errorf("FORCE: %v", err)
	}
	await(t, patience, held.Lost(), "the loss of the lease that was forced", nil)
	tell(t, cluster.Servers[0], "FLUSHALL")
	waitFor(t, "the flushed node is noticed", func() bool { return one.Status().Ready == 2 })
	awaitReady(t, one, other)

	unused := rightsOf(acl)
	for _, server := range cluster.Servers {
		noDenial(t, server)
		for command := range commandsOf(t, server) {
			delete(unused, command)
		}
	}
	delete(unused, "auth") // HELLO includes it
	for right := range maps.Keys(unused) {
		t.Errorf("%s: nothing uses +%s", &acl, right)
	}
}

// If one node denies a right, only that node is affected: locks go on, and STATUS says what the
// node refuses.
func TestEachRedisRightIsMissed(t *testing.T) {
	t.Parallel() // mostly waits
	acl := redisUser(t)
	cluster := redlocktest.StartRedis(t, 3)
	for _, server := range cluster.Servers {
		setUser(t, server, acl)
	}
	awaitReady(t, hostWithUser(t, cluster)) // waits for the end of the quarantine
	for _, right := range slices.Sorted(maps.Keys(rightsOf(acl))) {
		if right == "hmget" {
			awaitReady(t, hostWithUser(t, cluster)) // waits for the end of the quarantine that the test of hgetall caused
		}
		switch right {
		case "auth", "hello": // every user has these
		case "scan":
			missScan(t, cluster)
		default:
			missRight(t, cluster, right)
		}
	}
}

// missScan removes +scan: a list of all locks reports that, and everything else goes on.
func missScan(t *testing.T, cluster *redlocktest.Cluster) {
	t.Helper()
	tell(t, cluster.Servers[0], "ACL", "SETUSER", "redlockd", "-scan")
	defer tell(t, cluster.Servers[0], "ACL", "SETUSER", "redlockd", "+scan")
	one, other := hostWithUser(t, cluster), hostWithUser(t, cluster)
	defer one.Close()
	defer other.Close()
	awaitReady(t, one, other)
	if _, err := one.Scan(within(t), ""); !errors.Is(err, redlock.ErrScanDenied) || !strings.Contains(err.Error(), "ACL SETUSER redlockd +scan") {
		t.Errorf("SCAN without +scan: %v, want what to do", err)
	}
	useKinds(t, one, other, "scan")
	for _, node := range one.Status().Nodes {
		if node.State != redlock.NodeReady || node.Reason != nil || len(node.OtherWarnings()) > 0 {
			t.Errorf("without +scan, a node is shown as %s: %v %v", node.State, node.Reason, node.OtherWarnings())
		}
	}
}

// missRight lets two hosts connect to nodes of which the last one denies a right.
func missRight(t *testing.T, cluster *redlocktest.Cluster, right string) {
	t.Helper()
	without := cluster.Servers[2]
	tell(t, without, "ACL", "SETUSER", "redlockd", "-"+right)
	defer tell(t, without, "ACL", "SETUSER", "redlockd", "+"+right)
	one, other := hostWithUser(t, cluster), hostWithUser(t, cluster)
	defer one.Close()
	defer other.Close()
	waitFor(t, "the other nodes are ready", func() bool {
		return !slices.ContainsFunc(slices.Concat(one.Status().Nodes[:2], other.Status().Nodes[:2]), func(node redlock.NodeStatus) bool {
			return node.State != redlock.NodeReady || !node.Calls
		})
	})
	if right == "hgetall" { // a node that lost its memory gets a copy of the counters
		tell(t, cluster.Servers[0], "FLUSHALL")
	}
	said := ""
	for giveUp := time.Now().Add(patience); !namesRight(said, right); {
		useKinds(t, one, other, right)
		said = ""
		for _, q := range []*redlock.Quorum{one, other} {
			node := q.Status().Nodes[2]
			said += fmt.Sprint(node.Reason, node.Warning)
		}
		if time.Now().After(giveUp) {
			t.Fatalf("without +%s: STATUS says %q", right, said)
		}
	}
}

// namesRight reports whether the missing right is shown, or Redis's denial. That names the command,
// unless that is within a script.
func namesRight(said, right string) bool {
	return strings.Contains(said, "lacks +"+right+"; fix: ACL SETUSER redlockd ") || strings.Contains(said, "NOPERM") && strings.Contains(said, "'"+right+"'") || strings.Contains(said, "can't run this command")
}

// useKinds uses all rights. One node lacks the right missing.
func useKinds(t *testing.T, one, other *redlock.Quorum, missing string) {
	t.Helper()
	for name, kind := range map[string]redlock.Request{
		"exclusive": {Name: "job"}, "shared": {Name: "shared", Shared: true}, "slots": {Name: "slots", Slots: 2}, "names": {Names: []string{"a", "b"}},
	} {
		useKind(t, name, kind, one, other, missing)
	}
}

// waitForSlot lets a client of the other host wait for a slot of which none is free.
func waitForSlot(t *testing.T, one, other *redlock.Quorum) {
	t.Helper()
	full := redlock.Request{Name: "full", Slots: 2}
	first, second := acquire(t, one, full), acquire(t, one, full)
	granted := make(chan *redlock.Lease, 1)
	go func() {
		l, err := ask(t.Context(), other, full)
		if err != nil {
			t.Errorf("a slot: %v", err)
		}
		granted <- l
	}()
	waitFor(t, "the client waits", func() bool {
		_, waiters, err := one.WhoWaits(within(t), "full")
		return err == nil && len(waiters) == 1
	})
	release := func(l *redlock.Lease) {
		if err := l.Release(within(t)); err != nil {
			t.Errorf("the release of a slot: %v", err)
		}
	}
	release(first)
	if l := <-granted; l != nil {
		release(l)
	}
	release(second)
}

// aclTTL is max_ttl, and the lease time of each lock: longer than a busy machine takes for one. Each
// quarantine takes as long.
const aclTTL = 5 * time.Second

// hostWithUser returns a quorum that logs in as the page's user.
func hostWithUser(t *testing.T, cluster *redlocktest.Cluster, durable ...*redlocktest.Server) *redlock.Quorum {
	t.Helper()
	var nodes []redlock.Node
	for _, server := range cluster.Servers {
		nodes = append(nodes, redlock.RedisNode(redlock.NodeOptions{Name: server.Name(), Address: server.Addr(), Username: "redlockd",
			Durable: slices.Contains(durable, server), Password: func() (string, error) { return "wonderland", nil }}))
	}
	q, err := redlock.New(redlock.Options{Nodes: nodes, Prefix: "redlock:", NodeTimeout: 5 * time.Second, MaxTTL: aclTTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func awaitReady(t *testing.T, hosts ...*redlock.Quorum) {
	t.Helper()
	waitFor(t, "all nodes are ready, and tell what changes", func() bool {
		for _, q := range hosts {
			for _, node := range q.Status().Nodes {
				if node.State != redlock.NodeReady || !node.Calls {
					return false
				}
			}
		}
		return true
	})
}

func acquire(t *testing.T, q *redlock.Quorum, r redlock.Request) *redlock.Lease {
	t.Helper()
	l, err := ask(t.Context(), q, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return l
}

func ask(ctx context.Context, q *redlock.Quorum, r redlock.Request) (*redlock.Lease, error) {
	r.Keep, r.TTL, r.Wait = true, aclTTL, patience
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return q.Acquire(ctx, r)
}

// useKind takes a lock on one host, extends and shows it, and hands it over to a client of the
// other host that waits for it exclusively.
func useKind(t *testing.T, name string, kind redlock.Request, one, other *redlock.Quorum, missing string) {
	t.Helper()
	l := acquire(t, one, kind)
	if err := l.Extend(within(t), aclTTL); err != nil {
		t.Errorf("%s: extending: %v", name, err)
	}
	if _, err := other.Who(within(t), append(kind.Names, kind.Name)[0]); err != nil {
		t.Errorf("%s: WHO: %v", name, err)
	}
	refused := make(chan error, 1) // the last refusal
	type answer struct {
		lease *redlock.Lease
		err   error
	}
	got := make(chan answer, 1)
	waiting := redlock.Request{Name: kind.Name, Names: kind.Names, Failed: func(err error) {
		select {
		case <-refused:
		default:
		}
		refused <- err // Acquire calls this, so it must not block
	}}
	go func() {
		lease, err := ask(t.Context(), other, waiting)
		got <- answer{lease, err}
	}()
	select {
	case <-refused:
	case a := <-got:
		t.Fatalf("%s: granted on both hosts: %v", name, a.err)
	case <-time.After(patience):
		t.Fatalf("%s: neither refused nor granted on the other host", name)
	}
	if err := l.Release(within(t)); err != nil {
		t.Errorf("%s: releasing: %v", name, err)
	}
	a := await(t, 2*patience, got, name+": the lock on the other host, or an error", func() string {
		select {
		case err := <-refused:
			return fmt.Sprint("the last refusal: ", err)
		default:
			return "one refusal"
		}
	})
	if a.err != nil {
		t.Fatalf("%s: waiting on the other host: %v", name, a.err)
	}
	// The node without +del cannot release. If its vote and one other granted the lock, only one
	// node confirms the release.
	if err := a.lease.Release(within(t)); err != nil && !(missing == "del" && errors.Is(err, redlock.ErrLost)) {
		t.Errorf("%s: releasing on the other host: %v", name, err)
	}
}

// rightsOf returns the commands that a user may use.
func rightsOf(acl block) map[string]bool {
	rights := map[string]bool{}
	for _, word := range strings.Fields(acl.text()) {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			rights[command] = true
		}
	}
	return rights
}

// commandsOf returns the commands that a server has executed, in scripts and outside.
func commandsOf(t *testing.T, server *redlocktest.Server) map[string]bool {
	t.Helper()
	reply, err := server.Do("INFO", "commandstats")
	if err != nil || reply.Err != nil {
		t.Fatal(err, reply.Err)
	}
	used := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):`).FindAllStringSubmatch(reply.Str, -1) {
		used[found[1]] = true
	}
	return used
}
