package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// never is an end of Retain that must not come.
func never(t *testing.T) func() {
	return func() { t.Error("the lease must not be released yet") }
}

// A retained lease can be passed on at any time, without a byte to any node. Without Retain
// that ends after PassWindow.
func TestRetain(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		trip := func(int) time.Duration { return 6 * ms }
		f.delay(trip, trip)
		l := f.acquire(passed)
		time.Sleep(500 * ms) // no confirmation counts any more
		for range 4 {
			want(t, "retained", l.Retain(time.Second, never(t)), true)
			time.Sleep(700 * ms)
			l = f.passTo(l, passed)
		}
		time.Sleep(200 * ms)
		want(t, "passed on though it was not retained", f.passOn(l, passed).Passed(), false)
	})
}

// The confirmations end when the time is over, and when the lease is released.
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

// Another host that waits ends it: within the time between two confirmations and two round
// trips.
func TestRetainedIsWanted(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		f.delay(each(ms), each(ms))
		l := f.acquire(passed)
		ended := make(chan time.Duration, 1)
		want(t, "retained", l.Retain(time.Second, func() { ended <- f.now() }), true)
		time.Sleep(200 * ms)
		began := f.now()
		w := f.wait(other, patient)
		wantWithin(t, "ended after", <-ended-began, 0, redlock.PassWindow/3+10*ms)
		want(t, "retained although another host waits", l.Retain(time.Second, never(t)), false)
		f.release(l)
		<-w.done
		wantWithin(t, "the other host has it after", f.now()-began, 0, redlock.PassWindow/3+30*ms) // it is woken, and asks the nodes again
	})
}

// If the nodes do not answer, nobody knows whether another host waits.
func TestRetainedUnconfirmed(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		ended := make(chan struct{})
		want(t, "retained", l.Retain(time.Second, func() { close(ended) }), true)
		every(f.sims, hang)
		began := f.now()
		<-ended
		wantWithin(t, "ended after", f.now()-began, 0, 150*ms)
		every(f.sims, resume)
	})
}

// What cannot be passed on cannot be retained.
func TestRetainOnlyIf(t *testing.T) {
	for what, change := range map[string]func(*redlock.Request){
		"it is not kept":  func(r *redlock.Request) { r.Keep = false },
		"it has no block": func(r *redlock.Request) { r.Block = 0 },
		"it is shared":    func(r *redlock.Request) { r.Shared = true },
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
}
