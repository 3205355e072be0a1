package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// never returns a function for Retain that must not be called.
func never(t *testing.T) func() {
	return func() { t.Error("the lease must not be released yet") }
}

// A retained lease can be passed at any time, without a byte to any node. Without Retain, passes
// end after PassWindow.
func TestRetain(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		trip := func(int) time.Duration { return 6 * ms }
		f.delay(trip, trip)
		l := f.acquire(passed)
		time.Sleep(500 * ms) // no confirmation counts any more
		for _, idle := range []time.Duration{100 * ms, 700 * ms, 700 * ms, 700 * ms} {
			want(t, "retained", l.Retain(time.Second, never(t)), true)
			time.Sleep(idle)
			l = f.passTo(l, passed)
		}
		time.Sleep(200 * ms)
		want(t, "passed without Retain", f.passOn(l, passed).Passed(), false)
	})
}

// The confirmations end after the given time, or when the lease is released.
func TestRetainEnds(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		want(t, "retained", l.Retain(300*ms, never(t)), true)
		time.Sleep(400 * ms)
		j := f.record()
		time.Sleep(400 * ms)
		want(t, "confirmations after the time", len(j.of("v")), 0)
		want(t, "retained again", l.Retain(time.Second, never(t)), true)
		time.Sleep(100 * ms)
		f.release(l)
		j = f.record()
		time.Sleep(400 * ms)
		want(t, "confirmations after the release", len(j.of("v")), 0)
		want(t, "retained after the release", l.Retain(time.Second, never(t)), false)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// If another host waits, the confirmations end within the interval between two confirmations plus
// two round trips.
func TestRetainedIsWanted(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		f.delay(each(ms), each(ms))
		l := f.acquire(passed)
		ended := make(chan time.Duration, 1)
		want(t, "retained", l.Retain(time.Second, func() { ended <- f.now() }), true)
		time.Sleep(200 * ms)
		began := f.now()
		w := f.wait(other, patient)
		wantWithin(t, "time until the retention ended", <-ended-began, 0, redlock.PassWindow/3+10*ms)
		want(t, "retained although another host waits", l.Retain(time.Second, never(t)), false)
		f.release(l)
		<-w.done
		wantWithin(t, "time until the other host got the lock", f.now()-began, 0, redlock.PassWindow/3+30*ms) // it is woken, and makes an attempt
	})
}

// wake sets the wake-up key of x on each node, like a refused client of another host.
func (f *fleet) wake() {
	for _, sim := range f.sims {
		sim.Do("SET", "redlock:x\x00b", "1", "PX", "3000")
	}
}

// The end function is called once, however long the release takes.
func TestRetentionEndsOnce(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		var ends atomic.Int32
		want(t, "retained", l.Retain(time.Second, func() { ends.Add(1) }), true)
		f.wake()
		time.Sleep(500 * ms)
		want(t, "ends", ends.Load(), 1)
		f.release(l)
	})
}

// A confirmation that is in progress when the lease is released or lost does not call the end
// function.
func TestNoEndAfterRelease(t *testing.T) {
	for what, end := range map[string]func(l *redlock.Lease){
		"released": func(l *redlock.Lease) { _, _ = l.BeginRelease() },
		"lost":     func(l *redlock.Lease) { l.Lose(redlock.LostForced) },
	} {
		t.Run(what, func(t *testing.T) {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				trip := func(int) time.Duration { return 6 * ms }
				f.delay(trip, trip)
				l := f.acquire(passed)
				want(t, "retained", l.Retain(time.Second, never(t)), true)
				time.Sleep(100 * ms)
				f.wake()
				time.Sleep(5 * ms) // before the first answer that shows the waiter arrives
				end(l)
				time.Sleep(200 * ms)
			})
		})
	}
}

// The token of a retained lease is not exchanged: no client holds it, and an exchanged lease
// could not be passed.
func TestRetainedIsNotExchanged(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.passTo(f.acquire(byClient(1)), byClient(2))
		time.Sleep(300 * ms)
		want(t, "retained", l.Retain(time.Second, never(t)), true)
		j := f.record()
		time.Sleep(600 * ms)
		want(t, "exchanges", len(j.of("u")), 0)
		f.passTo(l, byClient(3))
	})
}

// When a retention ends, an exchange may be due. After that has begun, the lock is not passed
// with the former token.
func TestExchangeAfterRetention(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.passTo(f.acquire(byClient(1)), byClient(2))
		time.Sleep(300 * ms)
		ended := make(chan struct{})
		want(t, "retained", l.Retain(time.Second, func() { close(ended) }), true)
		time.Sleep(300 * ms)
		f.wake()
		<-ended
		time.Sleep(25 * ms) // the exchange has begun, and the last confirmation still counts
		want(t, "former token", l.Record().Former != "", true)
		next := f.passOn(l, byClient(3))
		want(t, "passed", next.Passed(), false)
		f.wantHolder("in the end", 3)
		f.release(next)
	})
}

// If the nodes do not answer, a retention ends, because a client of another host may be waiting.
func TestRetainedUnconfirmed(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		ended := make(chan struct{})
		want(t, "retained", l.Retain(time.Second, func() { close(ended) }), true)
		every(f.sims, hang)
		began := f.now()
		<-ended
		wantWithin(t, "time until the retention ended", f.now()-began, 0, 150*ms)
		every(f.sims, resume)
	})
}

// A lease that cannot be passed cannot be retained.
func TestRetainConditions(t *testing.T) {
	for what, change := range map[string]func(*redlock.Request){
		"it is without Keep": func(r *redlock.Request) { r.Keep = false },
		"it has no block":    func(r *redlock.Request) { r.Block = 0 },
		"it is shared":       func(r *redlock.Request) { r.Shared = true },
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			r := passed
			change(&r)
			want(t, what+": retained", f.acquire(r).Retain(time.Second, never(t)), false)
		})
	}
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		l.Lose(redlock.LostForced)
		want(t, "it is lost: retained", l.Retain(time.Second, never(t)), false)
	})
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, _ := f.exchanged(2)
		want(t, "its token was exchanged: retained", l.Retain(time.Second, never(t)), false)
	})
}
