package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// missing returns a Quorum whose host learns that its clock missed this time, when a hook is
// called for the nth time.
func (f *fleet) missing(missed time.Duration, n int64, hook func(*redlock.Options, func()), change ...func(*redlock.Options)) *redlock.Quorum {
	f.Helper()
	var host *redlock.Quorum
	var calls atomic.Int64
	host = f.another(append(change, func(o *redlock.Options) {
		hook(o, func() {
			if calls.Add(1) == n {
				host.Missed(missed)
			}
		})
	})...)
	f.Cleanup(host.Close)
	host.Settle(f.Context())
	return host
}

// While a lease is being granted, its host learns that its clock stood still. The lease ages by
// the missed time once, although it was not yet among the leases that are aged. The new deadline
// is reported, and so is LOST. Guards attempt.age; keeper.keep: ageMissed.
func TestGrantedWhileHostIsJudged(t *testing.T) {
	const ttl, guard, missed = 3 * time.Second, time.Second, 600 * ms
	for _, look := range []int64{1, 2} { // 2: the last check before the grant
		simTest(t, 5, func(t *testing.T, f *fleet) {
			reported := make(chan time.Duration, 1)
			host := f.missing(missed, look, redlock.WhenWon, func(o *redlock.Options) {
				o.DeadlineChanged = func(l *redlock.Lease) { reported <- l.Deadline() }
			})
			asked := f.now()
			l, err := host.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Guard: guard})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "deadline after the request", l.Deadline()-asked, ttl-(ttl/100+2*ms)-missed)
			if look == 2 {
				want(t, "the reported deadline", <-reported, l.Deadline())
			}
			<-l.Lost()
			want(t, "lost before the deadline", l.Deadline()-f.now(), guard)
		})
	}
}

// A lease that is confirmed while the host is judged also ages. If the missed time exceeds its
// remaining time, it is lost: an expired lease never becomes valid again. Guards Lease.extended:
// ageLocked, and missed.
func TestConfirmedWhileHostIsJudged(t *testing.T) {
	const ttl = 3 * time.Second
	for missed, lapses := range map[time.Duration]bool{600 * ms: false, 2 * time.Second: true} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			host := f.missing(missed, 1, redlock.WhenConfirmed)
			asked := f.now()
			l, err := host.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Keep: true})
			if err != nil {
				t.Fatal(err)
			}
			f.at(asked, ttl/3+10*ms)
			if lapses { // by the earlier deadline
				wantErr(t, "lease", l.Err(), redlock.ErrLost)
				<-l.Lost()
				want(t, "time from the request to the loss", f.now()-asked, ttl/3+10*ms)
				return
			}
			full := ttl - (ttl/100 + 2*ms)
			wantWithin(t, "deadline after the extension was sent", l.Deadline()-asked-ttl/3, full-missed-10*ms, full-missed)
		})
	}
}

// If a lease expires because of the missed time, the loss is reported only after its client has
// the lease. Guards ageMissed: rearm.
func TestExpiredWhenHostIsJudged(t *testing.T) {
	const ttl, missed = 3 * time.Second, 10 * time.Second
	simTest(t, 5, func(t *testing.T, f *fleet) {
		returned, reported := make(chan bool, 1), make(chan bool, 1)
		lost := func() {
			select {
			case <-returned:
			case <-time.After(time.Minute):
				t.Error("Acquire waits for OnLost")
			}
			reported <- true
		}
		host := f.missing(missed, 2, redlock.WhenWon)
		request := redlock.Request{Name: "x", TTL: ttl, OnLost: func(*redlock.Lease) { lost() }}
		l, err := host.Acquire(t.Context(), request)
		want(t, "error", err, nil)
		wantErr(t, "lease", l.Err(), redlock.ErrLost)
		returned <- true
		<-reported
		record := f.acquire(redlock.Request{Name: "y", TTL: ttl}).Record()
		f.restart(0)
		f.q.Missed(missed)
		f.q.Adopt([]redlock.Record{record}, func(int, *redlock.Lease) { lost() })
		returned <- true
		<-reported
	})
}

// If a lease is lost during an extension, no change of its deadline is reported. Guards
// Lease.ageLocked: held.
func TestLostWhenHostIsJudged(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		var moved atomic.Int32
		host := f.another(func(o *redlock.Options) {
			o.NodeTimeout = 700 * ms
			o.DeadlineChanged = func(*redlock.Lease) { moved.Add(1) }
		})
		defer host.Close()
		host.Settle(t.Context())
		l, err := host.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second, Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		every(f.sims, hang)
		time.Sleep(400 * ms) // its extension is in progress
		host.Missed(300 * ms)
		<-l.Lost()
		deadline := l.Deadline()
		time.Sleep(time.Second) // the extension ends without a quorum
		want(t, "deadline changes reported", moved.Load(), int32(0))
		want(t, "deadline", l.Deadline(), deadline)
	})
}

// An adopted lease was granted to another process, which could not know of the time missed since
// then. Guards keeper.watchAll: ageMissed.
func TestAdoptedAfterHostWasJudged(t *testing.T) {
	const missed = 600 * ms
	simTest(t, 5, func(t *testing.T, f *fleet) {
		record := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second}).Record()
		f.restart(0)
		f.q.Missed(missed)
		l, _ := f.adopt(record)
		want(t, "the deadline has moved back by", record.Deadline-l.Deadline(), missed)
	})
}
