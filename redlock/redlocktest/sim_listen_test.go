package redlocktest

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// listening is a listener for the key k. It records the instants at which it was notified.
type listening struct {
	redlock.Listener
	notified []time.Time
}

func listenTo(t *testing.T, sim *Sim) *listening {
	t.Helper()
	l := &listening{}
	listener, err := sim.Node().Listen(t.Context(), func([]string) { l.notified = append(l.notified, time.Now()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listener.Close)
	l.Listener = listener
	conn := dialSim(t, sim)
	for _, command := range [][]string{
		{"CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(l.ID(), 10), "OPTIN"}, {"CLIENT", "CACHING", "YES"}, {"MGET", "k"},
	} {
		if reply, err := do(t, conn, command...); err != nil || reply.Err != nil {
			t.Fatal(command, reply.Err, err)
		}
	}
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

// A published message reaches the listeners that subscribed, after the delay of a reply.
func TestSimListenerGetsMessages(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		var got []string
		listener, err := sim.Node().Listen(t.Context(), func(messages []string) { got = append(got, messages...) })
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn := dialSim(t, sim)
		do(t, conn, "PUBLISH", "c", "before")
		if err := listener.(*simListener).Subscribe(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		sim.SetDelay(delayed(3*ms, 4*ms))
		do(t, conn, "PUBLISH", "c", "message")
		do(t, conn, "PUBLISH", "other", "message")
		time.Sleep(ms)
		synctest.Wait()
		want(t, "messages", strings.Join(got, " "), "message")
	})
}

func TestSimListenerIsNotifiedAfterDelay(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		l, conn := listenTo(t, sim), dialSim(t, sim)
		sim.SetDelay(delayed(3*ms, 4*ms))
		begin := time.Now()
		do(t, conn, "SET", "k", "v")
		time.Sleep(ms)
		synctest.Wait()
		want(t, "notifications", len(l.notified), 1)
		late := l.notified[0].Sub(begin) - 7*ms
		want(t, "later than a reply, by less than a millisecond", late > 0 && late < ms, true)
	})
}

func TestSimListenerIsNotifiedOfExpiry(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		begin := time.Now()
		sim.Do("SET", "k", "v", "PX", "400")
		l := listenTo(t, sim)
		sim.SetClockRate(2)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "notifications", len(l.notified), 1)
		want(t, "notified by a clock that is twice as fast", l.notified[0].Sub(begin).Round(ms), 200*ms+expiryLag+ms)
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
				sim.Do("SET", "k", "v")
				synctest.Wait()
				want(t, "notifications", len(l.notified), 0)
				want(t, "connections of listeners, and others", [2]int{sim.Counts().Listens, sim.Counts().Dials}, [2]int{1, 1})
			})
		})
	}
}
