package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// setTrip makes each answer of a node take this long.
func setTrip(s *redlocktest.Sim, trip time.Duration) {
	s.SetDelay(func() (request, reply time.Duration) { return trip / 2, trip - trip/2 })
}

// A node whose answers come after node_timeout because it is far is down, and the reason has both
// times and a node_timeout that is long enough. It does not matter whether the node is too far to log
// in, or becomes far later. If it is near again, it is ready. Each change is observed once.
func TestFarNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		var seen []string
		f.open(func(o *redlock.Options) {
			o.NodeTimeout = 50 * ms
			o.Observe = func(s redlock.NodeStatus) {
				text := string(s.State)
				if s.Reason != nil {
					text += ": " + s.Reason.Error()
				}
				if seen == nil || seen[len(seen)-1] != text {
					seen = append(seen, text)
				}
			}
		})
		defer f.q.Close()
		f.q.Settle(t.Context())
		want(t, "near", f.state(), redlock.NodeReady)
		const raise = ", but node_timeout is 50ms: raise node_timeout to at least "
		for _, far := range []struct {
			trip time.Duration
			want string
		}{
			{60 * ms, "answers after 60ms" + raise + "200ms on all hosts, or use nodes that are nearer"},
			{83 * ms, "answers after 83ms" + raise + "250ms on all hosts, or use nodes that are nearer"},
		} {
			for _, reconnect := range []bool{false, true} {
				setTrip(f.sims[0], far.trip)
				if reconnect {
					f.sims[0].Cut()
				}
				time.Sleep(5 * time.Second)
				status := f.q.Status().Nodes[0]
				want(t, name("%v, reconnect %v: state", far.trip, reconnect), f.state(), redlock.NodeDown)
				want(t, name("%v, reconnect %v: reason", far.trip, reconnect), fmt.Sprint(status.Reason), far.want)
				_, err := f.q.Acquire(t.Context(), oneTry)
				want(t, "it does not vote", errors.Is(err, redlock.ErrNoQuorum), true)
				setTrip(f.sims[0], ms)
				time.Sleep(5 * time.Second)
				want(t, "near again", f.state(), redlock.NodeReady)
				l := f.acquire(oneTry)
				f.release(l)
			}
		}
		synctest.Wait()
		for i := 2; i < len(seen); i++ {
			if seen[i] == "ready" && seen[i-1] == "ready" {
				t.Errorf("%q was observed twice in a row", seen[i])
			}
		}
		if n := len(seen); n > 16 {
			t.Errorf("%d changes were observed: %q", n, seen)
		}
	})
}
