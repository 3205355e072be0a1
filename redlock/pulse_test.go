package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// pulseBound is the longest time between two rounds of a loop, whatever the nodes do.
const pulseBound = time.Second

// The loops make rounds when nothing is requested, when nodes are down, and when nodes hang.
func TestPulse(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		for _, c := range []struct {
			name string
			make func(*redlocktest.Sim)
		}{
			{"idle", func(*redlocktest.Sim) {}},
			{"hung", (*redlocktest.Sim).Hang},
			{"down", (*redlocktest.Sim).Down},
		} {
			every(f.sims, c.make)
			for range 5 {
				before := f.q.Pulse()
				time.Sleep(pulseBound)
				if after := f.q.Pulse(); !after.AdvancedSince(before) {
					t.Errorf("%s: got %+v and %v later %+v, want both to increase", c.name, before, pulseBound, after)
				}
			}
		}
	})
}

// If all lanes hang, there is no pulse until they continue.
func TestNoPulse(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	simTest(t, 3, func(t *testing.T, f *fleet) {
		shut := make(chan struct{})
		gate.Store(&shut)
		f.q.Pulse()
		synctest.Wait() // until every lane waits at the gate
		before := f.q.Pulse()
		time.Sleep(10 * pulseBound)
		if after := f.q.Pulse(); after.AdvancedSince(before) || after.Keeper == before.Keeper {
			t.Errorf("got %+v and later %+v, want rounds of the keeper only", before, after)
		}
		gate.Store(nil)
		close(shut)
		time.Sleep(pulseBound)
		if after := f.q.Pulse(); !after.AdvancedSince(before) {
			t.Errorf("after the gate: got %+v after %+v, want a pulse", after, before)
		}
	}, func(o *redlock.Options) {
		redlock.Gate(o, func() {
			if shut := gate.Load(); shut != nil {
				<-*shut
			}
		})
	})
}

func TestPulseBeats(t *testing.T) {
	before := redlock.Pulse{Keeper: 7, Lanes: 9}
	for after, want := range map[redlock.Pulse]bool{
		{Keeper: 7, Lanes: 9}: false, {Keeper: 8, Lanes: 9}: false, {Keeper: 7, Lanes: 10}: false, {Keeper: 8, Lanes: 10}: true,
	} {
		if got := after.AdvancedSince(before); got != want {
			t.Errorf("%+v after %+v: got %v, want %v", after, before, got, want)
		}
	}
}
