package redlocktest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// listening is a listener. It records the instants at which messages arrived.
type listening struct {
	redlock.Listener
	notified []time.Time
}

func listenTo(t *testing.T, sim *Sim) *listening {
	t.Helper()
	l := &listening{}
	listener, err := sim.Node().Listen(t.Context(), "k", func(string) { l.notified = append(l.notified, time.Now()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listener.Close)
	l.Listener = listener
	return l
}

func (l *listening) isDone() bool {
	synctest.Wait()
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

func TestSimListenerIsNotifiedAfterDelay(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		l, conn := listenTo(t, sim), dialSim(t, sim)
		sim.SetDelay(delayed(3*ms, 4*ms))
		begin := time.Now()
		do(t, conn, "PUBLISH", "k", "v")
		time.Sleep(ms)
		synctest.Wait()
		want(t, "notifications", len(l.notified), 1)
		late := l.notified[0].Sub(begin) - 7*ms
		want(t, "later than a reply, by less than a millisecond", late > 0 && late < ms, true)
	})
}

func TestSimLosesMessages(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		l := listenTo(t, sim)
		sim.DropMessages(true)
		sim.Do("PUBLISH", "k", "lost")
		sim.DropMessages(false)
		sim.Do("PUBLISH", "k", "v")
		synctest.Wait()
		want(t, "notifications", len(l.notified), 1)
	})
}

func TestSimListenerBreaksIfNodeHangs(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		l := listenTo(t, sim)
		sim.Hang()
		time.Sleep(listenerSilence - 1)
		sim.Resume()
		sim.Hang()
		time.Sleep(listenerSilence - 1)
		want(t, "done after two short hangs", l.isDone(), false)
		time.Sleep(2 * time.Nanosecond)
		want(t, "done", l.isDone(), true)
	})
}

func TestSimListenerBreaks(t *testing.T) {
	for name, fault := range map[string]func(*Sim){
		"cut": (*Sim).Cut, "late": func(s *Sim) { s.CutLate(ms) }, "down": (*Sim).Down, "crash": func(s *Sim) { s.Crash(true) },
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(t *testing.T, sim *Sim) {
				l := listenTo(t, sim)
				want(t, "done before", l.isDone(), false)
				fault(sim)
				want(t, "done", l.isDone(), true)
				sim.Do("PUBLISH", "k", "v")
				synctest.Wait()
				want(t, "notifications", len(l.notified), 0)
				want(t, "connections of listeners, and others", [2]int{sim.Counts().Listens, sim.Counts().Dials}, [2]int{1, 0})
			})
		})
	}
}
