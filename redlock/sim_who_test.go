package redlock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If the lock's key has a value of another type, the error names the node and has its answer.
func TestWrongType(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims[:2], func(s *redlocktest.Sim) { s.Do("LPUSH", "redlock:x", "v") })
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantNoQuorum(t, err, redlock.FailedError, "a", "b")
		var answer redlock.ServerError
		want(t, "the error has the node's answer", errors.As(err, &answer) && strings.HasPrefix(string(answer), "WRONGTYPE"), true)
	})
}

// Who shows a holder that may have a quorum, and returns an error if too few nodes answer.
func TestWho(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.wantHolders("free")
		ours := redlock.Holder{Host: "web3", PID: 4121, UID: 33, User: "cron"}
		l := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Holder: ours})
		f.wantHolders("held", "web3 5/5")
		forget(f.sims[0])
		f.sims[1].Hang()
		f.wantHolders("one lost, one hung", "web3 3/4")
		every(f.sims[2:4], down)
		time.Sleep(ms)
		_, err := f.q.Who(t.Context(), "x")
		wantErr(t, "three do not answer", err, redlock.ErrNoQuorum)
		every(f.sims[2:4], up)
		f.sims[1].Resume()
		time.Sleep(2 * time.Second)
		f.release(l)
		synctest.Wait() // until it is released on all nodes
		foreign(f.sims[:2], "x", time.Minute)
		f.wantHolders("a minority")
		f.sims[4].Hang()
		f.wantHolders("a minority that could be a quorum", "unknown 2/4")
	})
}

// If a foreign client's value is a number, it is a holder like any other, not a semaphore with
// that many slots.
func TestWhoWithANumber(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims, func(s *redlocktest.Sim) { s.Do("SET", "redlock:x", "1795247588", "PX", "10000") })
		f.wantHolders("a number", "unknown 3/3")
	})
}

// Keys that somebody set without an expiry block the lock even if their values differ. The lock
// is not free, and it is no split vote, after which a waiter might win. Guards barred.
func TestKeysWithoutAnExpiry(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		for i, s := range f.sims[:3] {
			s.Do("SET", "redlock:x", name("of node %d", i))
		}
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantErr(t, "LOCK", err, redlock.ErrHeld)
		wantWords(t, err, "x: its key has no expiry, so no Redlock client set it: look at it on the nodes")
		want(t, "splits", f.q.Status().Counts.Splits, 0)
		f.wantHolders("three of five", "unknown 1/5", "unknown 1/5", "unknown 1/5")
		_, err = f.q.Force(t.Context(), "x")
		wantErr(t, "FORCE", err, redlock.ErrHeld)
		wantWords(t, err, "delete it there if nobody needs it; FORCE needs the same value on 3 nodes, and at most 1 of the 5 that answered show one")
		forget(f.sims[0])
		f.wantHolders("two of five")
		_, err = f.q.Acquire(t.Context(), oneTry)
		wantErr(t, "LOCK when two are left", err, nil)
	})
}

// A waiter for these keys asks at intervals, as for any lock of a foreign client. Nobody contends.
func TestWaiterOfKeysWithoutAnExpiry(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		for i, s := range f.sims[:3] {
			s.Do("SET", "redlock:x", name("of node %d", i))
		}
		w := f.wait(f.q, patient)
		time.Sleep(5 * time.Second)
		want(t, "it asks at most eight times a second", w.tries() <= 40, true)
		at := f.now()
		every(f.sims[:3], func(s *redlocktest.Sim) { s.Do("DEL", "redlock:x") })
		w.wantAfter("DEL", at, 0, 250*ms+soonAfter)
		want(t, "splits", f.q.Status().Counts.Splits, 0)
	}, longLeases)
}

func wantWords(t *testing.T, err error, words string) {
	t.Helper()
	if !strings.Contains(err.Error(), words) {
		t.Errorf("error %q: want it to say %q", err, words)
	}
}

func (f *fleet) wantHolders(what string, holders ...string) {
	f.Helper()
	all, err := f.q.Who(f.Context(), "x")
	want(f, what+": error", err, nil)
	got := make([]string, len(all))
	for i, h := range all {
		host := h.Holder.Host
		if !h.Holder.Known() {
			host = "unknown"
		}
		got[i] = name("%s %d/%d", host, h.Held, h.Nodes)
	}
	if !slices.Equal(got, holders) {
		f.Errorf("%s: holders %q, want %q", what, got, holders)
	}
}
