package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// try is a request that does not wait.
var try = redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true}

// retaining returns a retained lease that the nodes show as retained. It is released when another
// host waits.
func (f *fleet) retaining() *redlock.Lease {
	f.Helper()
	l := f.acquire(passed)
	want(f, "retained", l.Retain(time.Second, func() {
		_, _ = l.BeginRelease() // the test checks later that the lease was released
	}), true)
	time.Sleep(100 * ms)
	return l
}

// A client of another host that does not wait still gets a retained lock, within the node
// timeout.
func TestTryOfRetained(t *testing.T) {
	for what, change := range map[string]func(*redlock.Request){
		"exclusive": func(*redlock.Request) {},
		"shared":    func(r *redlock.Request) { r.Shared = true },
		"slots":     func(r *redlock.Request) { r.Slots = 3 },
		"several":   func(r *redlock.Request) { r.Name, r.Names = "", []string{"w", "x"} },
	} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			l := f.retaining()
			r := try
			change(&r)
			began := f.now()
			lease, err := other.Acquire(t.Context(), r)
			if err != nil {
				t.Fatalf("%s after %v: %v", what, f.now()-began, err)
			}
			wantWithin(t, what+": Acquire took", f.now()-began, 0, 50*ms)
			wantErr(t, what+": the retained lease", l.Err(), redlock.ErrReleased)
			want(t, what+": Release", lease.Release(t.Context()), nil)
		})
	}
}

// If a client holds the lock, a request that does not wait is refused after one attempt.
func TestTryOfHeld(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(passed)
		time.Sleep(30 * ms) // the lease is confirmed meanwhile
		tries := 0
		r := try
		r.Failed = func(error) { tries++ }
		began := f.now()
		_, err := other.Acquire(t.Context(), r)
		wantErr(t, "try", err, redlock.ErrHeld)
		want(t, "attempts", tries, 1)
		wantWithin(t, "Acquire took", f.now()-began, 0, 2*ms)
		want(t, "the lease", l.Err(), nil)
	})
}

// If a client of the holding host gets the lock again, or the retained lock is not released, the
// request fails within about one node timeout.
func TestTryOfRetainedFails(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(passed)
		want(t, "retained", l.Retain(time.Second, func() {}), true)
		time.Sleep(100 * ms)
		l = f.passTo(l, passed)
		began := f.now()
		_, err := other.Acquire(t.Context(), try)
		wantErr(t, "try", err, redlock.ErrHeld)
		wantWithin(t, "Acquire took", f.now()-began, 0, 55*ms)
		time.Sleep(100 * ms)
		began = f.now()
		_, err = other.Acquire(t.Context(), try)
		wantErr(t, "try while the lock is in use", err, redlock.ErrHeld)
		wantWithin(t, "Acquire took", f.now()-began, 0, 2*ms)
		want(t, "the lease", l.Err(), nil)
	})
}

// However long the lock is shown as retained, a request that does not wait fails after one node
// timeout. A request with Wait fails when Wait ends.
func TestTryOfRetainedForLong(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			l := f.acquire(passed)
			for _, sim := range f.sims { // as if its host did not learn that a client waits
				sim.Do("SET", "redlock:x\x00r", l.Record().Token, "PX", "3000")
			}
			r := try
			r.Wait = wait
			began := f.now()
			_, err := other.Acquire(t.Context(), r)
			wantErr(t, "try", err, redlock.ErrHeld)
			least := max(wait, 50*ms)
			wantWithin(t, name("wait %v: Acquire took", wait), f.now()-began, least, least+5*ms)
		})
	}
}

// If another client gets the released lock first, the request fails at once.
func TestTryOfRetainedIsOvertaken(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(passed)
		want(t, "retained", l.Retain(time.Second, func() {}), true)
		time.Sleep(100 * ms)
		began := f.now()
		a := f.wait(other, try)
		time.Sleep(10 * ms)
		for _, sim := range f.sims { // released and acquired at the same instant
			sim.Do("SET", "redlock:x", "another client's", "PX", "3000")
			sim.Do("DEL", "redlock:x\x00b")
		}
		<-a.done
		wantErr(t, "try", a.err, redlock.ErrHeld)
		wantWithin(t, "Acquire took", f.now()-began, 10*ms, 20*ms)
	})
}

// If several clients split the votes when the retained lock is released, none of them gets it,
// and the request continues.
func TestTryOfRetainedIsSplit(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(passed)
		want(t, "retained", l.Retain(time.Second, func() {}), true)
		time.Sleep(100 * ms)
		w := f.wait(other, try)
		time.Sleep(10 * ms)
		for i, sim := range f.sims { // other clients acquire it at once on all nodes except the first
			sim.Do("SET", "redlock:x", name("client %d", i), "PX", "3000")
			sim.Do("DEL", "redlock:x\x00b")
		}
		f.sims[0].Do("DEL", "redlock:x")
		time.Sleep(10 * ms)
		for _, sim := range f.sims {
			sim.Do("DEL", "redlock:x")
		}
		<-w.done
		want(t, "try", w.err, nil)
	})
}
