package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// While a writer waits for readers of its own host, its entry makes readers of other hosts wait,
// until the writer ends it. Guards Enter, Renew, End.
func TestEnter(t *testing.T) {
	reads := redlock.Request{Name: "x", TTL: keptLong, Shared: true}
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		first := f.acquire(reads)
		e, err := other.Enter(redlock.Request{Name: "x", TTL: 2 * time.Second})
		want(t, "Enter", err, nil)
		time.Sleep(ms)
		_, err = f.q.Acquire(t.Context(), reads)
		wantErr(t, "a reader during the entry", err, redlock.ErrHeld)
		time.Sleep(1500 * ms)
		e.Renew()
		time.Sleep(1500 * ms)
		_, err = f.q.Acquire(t.Context(), reads)
		wantErr(t, "a reader after the renewal", err, redlock.ErrHeld)
		e.End()
		time.Sleep(ms)
		f.release(f.acquire(reads))
		first.BeginRelease()
	})
}

// Acquire refuses an entry for another lock, and ends it.
func TestEntryForAnotherLock(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		f.acquire(redlock.Request{Name: "x", TTL: keptLong, Shared: true})
		e, err := other.Enter(redlock.Request{Name: "x", TTL: 20 * time.Second})
		want(t, "Enter", err, nil)
		time.Sleep(ms)
		_, err = other.Acquire(t.Context(), redlock.Request{Name: "y", TTL: time.Second, Entry: e})
		wantErr(t, "an entry for x in a request for y", err, redlock.ErrRequest)
		time.Sleep(ms)
		f.acquire(redlock.Request{Name: "x", TTL: time.Second, Shared: true})
	})
}
