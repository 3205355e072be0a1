package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testDir is the directory in which the daemon is built once for all tests.
var testDir string

func TestMain(m *testing.M) {
	if code, isPart := runPart(os.Args[1:], os.Stdout, os.Stderr); isPart { // of a test
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "rlbenchtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var testBinary = sync.OnceValues(func() (string, error) {
	return buildDaemon(context.Background(), testDir, "")
})

// testEnvironment starts the nodes and the daemon for one test.
func testEnvironment(t *testing.T) *environment {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	binary, err := testBinary()
	if err != nil {
		t.Fatal(err)
	}
	env, err := newEnvironment(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.close)
	return env
}

func testFleet(t *testing.T) *fleet {
	t.Helper()
	env := testEnvironment(t)
	d, err := env.startDaemon(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	return &fleet{nodes: env.nodes, daemon: d}
}

// withSlices calls measure with slices of a length, and with longer ones until it returns nil: on a busy
// machine, a short slice may have no grant. If something is wrong whatever the length, measure fails the test.
func withSlices(t *testing.T, length time.Duration, measure func(length time.Duration) error) {
	t.Helper()
	var err error
	for range 6 {
		if err = measure(length); err == nil || t.Failed() {
			return
		}
		t.Logf("in slices of %v: %v", length, err)
		length *= 2
	}
	t.Error(err)
}

// TestContenders lets every contender do some pairs, without and with a hung node, and checks that
// each pair was alone.
func TestContenders(t *testing.T) {
	t.Parallel() // nodes and daemons of its own, and no figure is compared with a time
	f := testFleet(t)
	entries, err := openAll(t.Context(), f, func(r recipe) bool { return !r.old })
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(entries)
	b := &pairBench{opts: options{rounds: 1}, fleet: f, entries: entries, logs: io.Discard}
	for _, e := range entries {
		for _, s := range []scenario{{title: "distinct", workers: 3}, {title: "same", workers: 3, shared: true}} {
			t.Run(e.name+"/"+s.title, func(t *testing.T) { testSlice(t, b, e, s, nil) })
		}
		if !e.peer { // the peers hang together with the node for seconds
			t.Run(e.name+"/hung", func(t *testing.T) { testSlice(t, b, e, scenario{title: "hung", workers: 3}, f.nodes[0]) })
		}
	}
}

func testSlice(t *testing.T, b *pairBench, e entry, s scenario, hung *node) {
	length := 50 * time.Millisecond
	if s.shared {
		length = 3 * retryLessThan // a split vote may need some retries
	}
	var got sample
	for giveUp := time.Now().Add(time.Minute); ; { // on a busy machine a node may answer too late
		var err error
		if got, err = b.slice(t.Context(), e, s, length, hung); err != nil {
			t.Fatal(err)
		}
		if got.failed == 0 || got.clashes > 0 || time.Now().After(giveUp) {
			break
		}
	}
	n := len(got.latencies)
	if n == 0 || got.failed > 0 || got.clashes > 0 {
		t.Fatalf("%d pairs, %d failures (%v), %d clashes; want pairs and nothing else", n, got.failed, got.failure, got.clashes)
	}
	// A lock and an unlock on a quorum of nodes, even if several are grouped.
	if least := int64(2 * quorum); got.commands < least {
		t.Errorf("%d commands on the nodes for %d pairs, want at least %d", got.commands, n, least)
	}
	if got.left > 0 && !e.peer { // the peers leave keys if a release overtook its acquire, or was cut short
		t.Errorf("%d keys left behind after %d pairs", got.left, n)
	}
}

// TestHeldLeases holds a few leases of every contender that has its own way of holding them.
func TestHeldLeases(t *testing.T) {
	t.Parallel() // mostly waits
	env := testEnvironment(t)
	for _, r := range recipes {
		if r.many || r.old {
			continue
		}
		t.Run(r.name, func(t *testing.T) { testHolding(t, env, r) })
	}
}

func testHolding(t *testing.T, env *environment, r recipe) {
	f := &fleet{nodes: env.nodes}
	if !r.peer {
		d, err := env.startDaemon(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		defer d.stop()
		f.daemon = d
	}
	withSlices(t, 100*time.Millisecond, func(well time.Duration) error {
		h := &holding{recipe: r, fleet: f, leases: 20, well: well}
		samples, err := h.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(samples) != 1 || samples[0].lost != 0 || samples[0].failed != 0 {
			return fmt.Errorf("samples %+v; want one, no lease lost and no unlock failed", samples)
		}
		left, err := leftBehind(env.nodes, h.mark)
		if err == nil && left > 0 && !r.peer { // the peers leave keys if a release was cut short
			err = fmt.Errorf("%d keys are left after all releases", left)
		}
		return err
	})
}

// TestLossesAreSeen removes keys without the holder's knowledge.
func TestLossesAreSeen(t *testing.T) {
	nodes := testEnvironment(t).nodes
	h := &holding{fleet: &fleet{nodes: nodes}, leases: 2, mark: "m:", known: make([]bool, 2),
		taken: []possession{newKeeper(lasting{}), newKeeper(lasting{})}}
	for _, n := range nodes[:quorum] {
		n.Do("SET", "m:0", "x")
		n.Do("SET", "m:1", "x")
	}
	if got, err := h.losses(nil); got.lost != 0 || got.bare != 2 || err != nil {
		t.Fatalf("on a quorum: %+v, %v; want none lost, two on a bare quorum", got, err)
	}
	nodes[0].Do("DEL", "m:1")
	if got, err := h.losses(nil); got.lost != 1 || !errors.Is(got.loss, errUncovered) || err != nil {
		t.Fatalf("one lock on a minority: %+v, %v; want 1 lost, uncovered", got, err)
	}
	h.taken[0] = newKeeper(expired{})
	if got, err := h.losses(nil); got.lost != 1 || !errors.Is(got.loss, errExpired) || err != nil {
		t.Fatalf("the other one expired: %+v, %v; want 1 more, expired", got, err)
	}
}

// lasting and expired are locks that no node has.
type lasting struct{ extender }
type expired struct{ extender }

func (lasting) until() time.Time { return time.Now().Add(time.Hour) }
func (expired) until() time.Time { return time.Now().Add(-time.Second) }

func TestIdleMemory(t *testing.T) {
	t.Parallel() // mostly waits
	env := testEnvironment(t)
	m, err := measureMemory(t.Context(), env, 200, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if m.Idle < 1<<20 {
		t.Errorf("an idle daemon has %d bytes: that cannot be", m.Idle)
	}
}

// fakeLocker grants every lock after a while.
type fakeLocker struct{ takes time.Duration }

func (l fakeLocker) lock(ctx context.Context, _ string, _ time.Duration) (held, error) {
	return l, pause(ctx, l.takes)
}

func (l fakeLocker) Unlock(context.Context) error { return nil }

func TestClashIsSeen(t *testing.T) {
	w := &worker{slice: &slice{}, locker: fakeLocker{}, place: new(place)}
	if err := w.pair(t.Context(), t.Context(), "m"); err != nil || w.clashes != 0 {
		t.Fatalf("a free lock was granted: %d clashes, %v; want none", w.clashes, err)
	}
	w.place.inUse.Store(1) // another worker is inside
	if err := w.pair(t.Context(), t.Context(), "m"); err != nil || w.clashes != 1 {
		t.Fatalf("a lock that is held was granted: %d clashes, %v; want 1", w.clashes, err)
	}
}

func TestSliceCountsPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slice{scenario: scenario{workers: 4}, mark: "m", length: 5500 * time.Microsecond, relief: func() {},
			locker: func(int) locker { return fakeLocker{time.Millisecond} }}
		got, err := s.run(t.Context())
		if err != nil || got.failed != 0 || len(got.latencies) != 24 {
			t.Fatalf("%d pairs, %d failed, %v; want the 6 that each of 4 workers has begun", len(got.latencies), got.failed, err)
		}
		if got.latencies[0] != time.Millisecond || got.elapsed != 6*time.Millisecond {
			t.Errorf("a pair took %v, all of them %v; want 1ms and 6ms", got.latencies[0], got.elapsed)
		}
	})
}

// TestSliceCallsForRelief has calls that hang until relief is called.
func TestSliceCallsForRelief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relieved := make(chan struct{})
		s := slice{scenario: scenario{workers: 2}, mark: "m", length: time.Second, limit: 3 * time.Second,
			relief: func() { close(relieved) }, locker: func(int) locker { return hangingLocker{relieved} }}
		got, err := s.run(t.Context())
		if err != nil || len(got.latencies) != 2 || got.latencies[0] != 4*time.Second {
			t.Fatalf("pairs %v, %v; want two of 4s", got.latencies, err)
		}
	})
}

// hangingLocker hangs in lock and ignores its context.
type hangingLocker struct{ relieved chan struct{} }

func (l hangingLocker) lock(context.Context, string, time.Duration) (held, error) {
	<-l.relieved
	return fakeLocker{}, nil
}

// TestStuckWorkerEndsTheRun has calls that never return.
func TestStuckWorkerEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		s := slice{scenario: scenario{workers: 1}, mark: "m", length: time.Second, relief: func() {},
			locker: func(int) locker { return hangingLocker{never} }}
		_, err := s.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("got %v, want an error that says that a worker is stuck", err)
		}
		close(never)
	})
}
