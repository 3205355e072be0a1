package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// writesTake is the beginning of the reason of nodes whose disks are slow.
const writesTake = "writes take 120ms, but node_timeout is 50ms: raise node_timeout to at least 400ms on all hosts, or find out what delays its writes"

// Nodes that read fast and write after node_timeout are down, and the reason has a node_timeout that is
// long enough. Without a quorum of others, locks cannot be taken, and the status says so. The probe
// finds the end of it without any client. If the connections break, that stays known.
func TestSlowWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		var states []string
		f.open(func(o *redlock.Options) {
			o.NodeTimeout = 50 * ms
			o.Observe = func(s redlock.NodeStatus) { states = append(states, s.Name+" "+string(s.State)) }
		})
		defer f.q.Close()
		f.q.Settle(t.Context())
		f.release(f.acquire(oneTry))
		f.delay(func(int) time.Duration { return ms }, func(int) time.Duration { return ms })
		for _, slow := range []int{1, 3} {
			for _, sim := range f.sims[:slow] {
				sim.SetWriteDelay(118 * ms)
			}
			l, err := f.q.Acquire(t.Context(), oneTry)
			want(t, name("%d slow: the lock is not taken", slow), errors.Is(err, redlock.ErrNoQuorum), slow == 3)
			if err == nil {
				f.release(l)
			}
			time.Sleep(3 * time.Second) // without a client
			status := f.q.Status()
			want(t, name("%d slow: spare", slow), status.Spare(), 1-slow)
			for i, node := range status.Nodes[:slow] {
				want(t, name("%d slow: state of %s", slow, node.Name), node.State, redlock.NodeDown)
				want(t, name("%d slow: reason of %s", slow, node.Name), strings.HasPrefix(fmt.Sprint(node.Reason), writesTake), true)
				want(t, name("%d slow: times of %d", slow, i), [2]time.Duration{node.RTT, node.Write}, [2]time.Duration{2 * ms, 120 * ms})
			}
			_, err = f.q.Acquire(t.Context(), oneTry)
			want(t, name("%d slow: the error says so", slow), err != nil && strings.Contains(err.Error(), writesTake), slow == 3)
			states = nil
			for _, sim := range f.sims[:slow] {
				sim.Cut()
			}
			time.Sleep(5 * time.Second)
			want(t, name("%d slow, connected again: spare", slow), f.q.Status().Spare(), 1-slow)
			want(t, name("%d slow, connected again: is never ready", slow), slices.Contains(states, "a ready"), false)
			for _, sim := range f.sims[:slow] {
				sim.SetWriteDelay(0)
			}
			time.Sleep(5 * time.Second)
			want(t, name("%d slow, now fast: ready", slow), f.q.Status().Ready, 3)
			f.release(f.acquire(oneTry))
		}
	})
}

// A node that refuses a lock has not written, and its fast refusals do not make it ready.
func TestRefusalsAreNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		f.open(func(o *redlock.Options) { o.NodeTimeout = 50 * ms })
		defer f.q.Close()
		f.q.Settle(t.Context())
		f.sims[0].Do("SET", "redlock:x", "foreign")
		f.sims[0].SetWriteDelay(120 * ms)
		for range 50 {
			f.q.Acquire(t.Context(), oneTryFor(time.Second)) // other hosts ask for the lock, too
			f.q.Acquire(t.Context(), redlock.Request{Name: "y", TTL: time.Second})
			time.Sleep(100 * ms)
		}
		want(t, "state", f.state(), redlock.NodeDown)
	})
}

// If writes take so long that the node seems silent, it is not said to hang: it reads well. No
// node_timeout is recommended that no lease would survive.
func TestWritesOfSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		f.open(func(o *redlock.Options) { o.NodeTimeout = 50 * ms })
		defer f.q.Close()
		f.q.Settle(t.Context())
		f.delay(func(int) time.Duration { return ms }, func(int) time.Duration { return ms })
		f.sims[0].SetWriteDelay(3 * time.Second)
		f.q.Acquire(t.Context(), oneTry)
		time.Sleep(10 * time.Second)
		for range 100 {
			time.Sleep(100 * ms)
			status := f.q.Status().Nodes[0]
			reason := fmt.Sprint(status.Reason)
			if status.State != redlock.NodeDown || status.RTT != 2*ms || !strings.HasPrefix(reason, "writes take ") || !strings.Contains(reason, "50ms: find out what delays its writes") {
				t.Fatalf("it is %s: %s; want down, because writes take long, and what to find out", status.State, reason)
			}
		}
	})
}
