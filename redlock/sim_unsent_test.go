package redlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// If an acquire was too late when its turn came, the host never sent it, so it owes that node no
// release. Guards withoutStale: markNotSent.
func TestNoReleaseForLateAcquire(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].SetDelay(func() (request, reply time.Duration) { return 0, 120 * ms })
		f.acquire(oneTry)
		time.Sleep(40 * ms)
		j := f.record()
		behind := f.acquire(redlock.Request{Name: "y", TTL: time.Second})
		f.at(behind.Deadline(), 200*ms)                                                                     // the lease is released by then
		acquires := slices.DeleteFunc(j.on(0, "a"), func(o operation) bool { return o.key != "redlock:y" }) // without those of probes
		want(t, "acquires at the slow node", len(acquires), 0)
		want(t, "releases at the slow node", len(j.on(0, "r")), 0)
		want(t, "releases at another node", len(j.on(1, "r")), 1)
	})
}

// A call that waits when the connection breaks was never sent. The host then owes the node the
// waiting release, but nothing for a waiting acquire. Guards failWaiting: markNotSent, addPendingLocked.
func TestCallsWaitingWhenConnectionBreaks(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		before := f.acquire(redlock.Request{Name: "before", TTL: 10 * time.Second})
		f.sims[0].Hang()
		f.acquire(oneTry) // in progress at the node that hangs
		f.release(f.acquire(redlock.Request{Name: "behind", TTL: 10 * time.Second}))
		f.release(before)
		time.Sleep(500 * ms) // silent for too long
		want(t, "state of the silent node", f.q.Status().Nodes[0].State, redlock.NodeDown)
		j := f.record()
		every(f.sims[:1], resume)
		time.Sleep(500 * ms)
		var released []string
		for _, o := range j.on(0, "r") {
			released = append(released, o.key)
		}
		want(t, "releases when the node is up again", name("%q", released), `["redlock:before"]`)
		want(t, "the key that was released", f.sims[0].Get("redlock:before"), "")
	})
}

// A connection id has no meaning in another process. So after a restart of a node, the host kills
// no connection, which could be another host's. Guards endPreviousConnection: runID.
func TestNoConnectionIsKilledAfterRestart(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		for range 3 {
			other := f.another()
			defer other.Close()
			other.Settle(t.Context())
		}
		f.sims[0].Restart()
		time.Sleep(2 * time.Second)
		want(t, "connections killed", f.sims[0].Counts().Killed, 0)
		want(t, "ready", f.q.Status().Ready, 1)
	})
}
