package daemon

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// Connections and LOCKs of before a restart are counted, and not refused where the
// limits are lower now.
func TestLimitsAfterARestart(t *testing.T) {
	l := newLimits(config.Limits{Connections: 1, ConnectionsPerUser: 1, LeasesPerUser: 1, WaitersPerUser: 1})
	sessions := []*session{{}, {}, {}}
	for _, s := range sessions[:2] {
		l.connect(s, true)
		if err := l.ask(0, 1, true, true); err != nil {
			t.Errorf("a LOCK of before: %v", err)
		}
	}
	l.disconnect(sessions[0])
	l.answered(0, 1, true, false)
	if err := l.admit(0); !errors.Is(err, errLimit) {
		t.Errorf("a new connection beside one of before: %v, want a limit", err)
	}
	if err := l.ask(0, 1, true, false); !errors.Is(err, errLimit) {
		t.Errorf("a new LOCK beside one of before: %v, want a limit", err)
	}
	l.disconnect(sessions[1])
	l.answered(0, 1, true, false)
	if err := l.admit(0); err != nil {
		t.Errorf("a connection when all of before are over: %v", err)
	}
	if err := l.admit(0); !errors.Is(err, errLimit) {
		t.Errorf("a connection beside one that is not open yet: %v, want a limit", err)
	}
	l.connect(sessions[2], false)
	if err := l.ask(0, 1, true, false); err != nil {
		t.Errorf("a LOCK when all of before are answered: %v", err)
	}
	l.disconnect(sessions[2])
	l.answered(0, 1, true, false)
	if len(l.users) != 0 {
		t.Errorf("%d users are remembered who have nothing", len(l.users))
	}
}

// Who was admitted and is not served after all is counted out.
func TestDismissedIsCountedOut(t *testing.T) {
	l := newLimits(config.Limits{ConnectionsPerUser: 1})
	for range 3 {
		if err := l.admit(1000); err != nil {
			t.Fatal(err)
		}
		if err := l.admit(1000); err == nil {
			t.Error("a second connection is admitted, want one")
		}
		l.dismiss(1000)
	}
	if n := l.connected(); n != 0 || len(l.users) != 0 {
		t.Errorf("%d connections and %d users are counted, want none", n, len(l.users))
	}
}

// A user's lost leases are remembered up to as many as he may hold, on all of his
// connections together.
func TestLostLeasesAreBounded(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 3 })
	a, b := d.dial(), d.dial()
	lose := func(w *wire, name string) {
		t.Helper()
		w.say("LOCK "+name+" hold=ttl ttl=100ms", granted5)
		w.want(`LOST lock=` + name + ` .*`)
	}
	for _, name := range []string{"a1", "a2", "a3"} {
		lose(a, name)
	}
	lose(b, "b")
	b.until("CHECK b", `ERR NOTHELD`)
	a.say("CHECK a1", `ERR LOST .*`)
	lose(a, "a4") // for which another one goes
	a.until("CHECK a1", `ERR NOTHELD`)
	a.say("CHECK a4", `ERR LOST .*`)
	a.say("QUIT", `OK`)
	a.ends()
	eventually(t, "there is room again", func() bool {
		lose(b, "b")
		lose(b, "c") // by then b would be forgotten, were it one too many
		b.send("CHECK b")
		return b.line()[:8] == "ERR LOST"
	})
}

// WHO, EXTEND and RESUME under way are as many for each user as may wait.
func TestQuestionsAreBounded(t *testing.T) {
	l := newLimits(config.Limits{WaitersPerUser: 2})
	for range 2 {
		if err := l.question(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.question(1); !errors.Is(err, errLimit) {
		t.Errorf("a third one: %v, want a limit", err)
	}
	if err := l.question(2); err != nil {
		t.Errorf("another user's: %v", err)
	}
	l.questionAnswered(1)
	if err := l.question(1); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// The limit is named that is in the way: who has as many waiters as he may has no leases
// to give back. Where both are the same, those who wait are too many.
func TestLimitThatIsNamed(t *testing.T) {
	for _, c := range []struct {
		leases, waiters int // that he has, without the other
		want            string
	}{
		{0, 3, "a limit of the config is reached: waiters_per_user = 3"},
		{3, 0, "a limit of the config is reached: leases_per_user = 3"},
		{1, 2, "a limit of the config is reached: leases_per_user = 3, of which 2 only wait for a lock"},
		{2, 0, ""},
		{0, 2, ""},
	} {
		l := newLimits(config.Limits{LeasesPerUser: 3, WaitersPerUser: 3})
		for range c.leases {
			l.ask(7, 1, true, false)
			l.answered(7, 1, true, true)
		}
		for range c.waiters {
			l.ask(7, 1, true, false)
		}
		got := ""
		if err := l.ask(7, 1, true, false); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("with %d leases and %d waiters: got %q, want %q", c.leases, c.waiters, got, c.want)
		}
	}
}

// However many of a user's LOCKs wait, what does not wait is bounded by his leases alone.
func TestOnlyThePatientAreWaiters(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 4, 1 })
	a, b := d.dial(), d.dial()
	a.say("LOCK a", granted5)
	b.send("@1 LOCK a")
	a.until("LIST", `state=waiting`)
	a.say("LOCK b", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.say("LOCK b wait=1s", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.say("TRY b", granted5)
	a.say("LOCK c wait=0", granted5)
	a.say("TRY d", `ERR LIMIT lock=d : .*leases_per_user = 4, of which 1 only wait for a lock`)
	a.say("UNLOCK c", `OK lock=c`)
	a.say("UNLOCK a", `OK lock=a`)
	b.want(`@1 ` + granted5)
	a.say("TRY a", `ERR HELD .*`) // which counts for nothing when it is over
	a.say("LOCK c", granted5)     // nobody waits
}

// Each name is as much to be kept as a lease of its own.
func TestNamesCountAsLeases(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 4 })
	a, other := d.dial(), d.another().dial()
	for range 2 {
		a.say("LOCK a,b,c", granted(`a,b,c`))
		a.say("TRY d,e", `ERR LIMIT lock=d,e : .*leases_per_user = 4, and this would be 2 more: each name counts`)
		a.say("TRY d", granted(`d`))
		a.say("UNLOCK d", `OK lock=d`)
		a.say("UNLOCK a,b,c", `OK lock=a,b,c`)
		a.say("TRY a,b,c,d,e", `ERR LIMIT lock=a,b,c,d,e : .*`)
		other.say("LOCK c", granted(`c`))
		a.say("TRY a,b,c", `ERR HELD lock=a,b,c .*`) // which counts for nothing when it is over
		other.say("UNLOCK c", `OK lock=c`)
	}
}

// What does not wait is no more than the user may have leases while it is under way.
func TestImpatientAreBounded(t *testing.T) {
	l := newLimits(config.Limits{LeasesPerUser: 2, WaitersPerUser: 1})
	for range 2 {
		if err := l.ask(7, 1, false, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.ask(7, 1, false, false); !errors.Is(err, errLimit) {
		t.Errorf("a third one under way: %v, want a limit", err)
	}
	l.answered(7, 1, false, false)
	l.answered(7, 1, false, false)
	if len(l.users) != 0 {
		t.Errorf("%d users are remembered who have nothing", len(l.users))
	}
}

// The connections of all users together are bounded, those of before a restart among them,
// whoever connects meanwhile.
func TestConnectionsAreBounded(t *testing.T) {
	l := newLimits(config.Limits{Connections: 3})
	for uid := range 2 {
		if err := l.admit(uid); err != nil {
			t.Fatal(err)
		}
	}
	one, another := &session{}, &session{}
	if l.connect(one, true); l.connected() != 3 {
		t.Errorf("%d are counted, want 3: one of before, and two that were admitted", l.connected())
	}
	if l.connect(another, false); l.connected() != 3 || one.listing != another.listing {
		t.Errorf("%d are counted, want 3, and one LIST of a user at a time", l.connected())
	}
	if err := l.admit(2); !errors.Is(err, errLimit) {
		t.Errorf("a fourth one: %v, want a limit", err)
	}
}

// Leases of before a restart count, with all that counts on them; what was allowed then is.
func TestLeasesOfBeforeCount(t *testing.T) {
	l := newLimits(config.Limits{LeasesPerUser: 3})
	l.restored(7, 2)
	for range 2 {
		if err := l.countUp(7, true); err != nil {
			t.Errorf("one that counts up, of before: %v", err)
		}
	}
	if l.countDown(7, 1); !errors.Is(l.countUp(7, false), errLimit) || !errors.Is(l.ask(7, 1, false, false), errLimit) {
		t.Error("a fourth one is allowed")
	}
}

// Lost leases are counted for who has nothing else, too; where leases are not bounded,
// none is one too many.
func TestRememberedAreCounted(t *testing.T) {
	for bound, want := range map[int]bool{3: true, 0: false} {
		l := newLimits(config.Limits{LeasesPerUser: bound})
		for range 3 {
			if l.remember(7) {
				t.Errorf("leases_per_user = %d: one of three is too many", bound)
			}
		}
		if got := l.remember(7); got != want {
			t.Errorf("leases_per_user = %d: a fourth one is too many: %v, want %v", bound, got, want)
		}
	}
}

// A desk remembers a thousand lost leases, and forgets the oldest of them, each once.
func TestDeskRemembers(t *testing.T) {
	k, all := &desk{}, make([]*holding, maxRemembered+3)
	for i := range all {
		all[i] = &holding{waiter: *newTestWaiter("a")}
	}
	k.remember(all[0], false)
	k.remove(all[0])
	for i, h := range all[1:] {
		var want *holding
		if i >= maxRemembered {
			want = all[1+i-maxRemembered]
		}
		if got := k.remember(h, false); got != want {
			t.Fatalf("with %d that are remembered: the wrong one is forgotten, or none", i)
		}
	}
}
