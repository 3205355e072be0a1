package access

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// openConn is a connection whose client has read all answers. The field gives each one its own
// address.
type openConn struct{ _ int }

func (*openConn) Unread() int { return 0 }

// Limits counts connections and LOCKs from before a restart. It does not refuse them if the limits
// are lower now.
func TestLimitsAfterARestart(t *testing.T) {
	l := NewLimits(config.Limits{Connections: 1, ConnectionsPerUser: 1, LeasesPerUser: 1, WaitersPerUser: 1})
	connections := []*openConn{{}, {}, {}}
	for _, c := range connections[:2] {
		l.Connect(0, c, true)
		if err := l.BeginLock(0, 1, true, true); err != nil {
			t.Errorf("a LOCK from before the restart: %v", err)
		}
	}
	l.Disconnect(0, connections[0])
	l.EndLock(0, 1, true, false)
	if err := l.AdmitConnection(0); !errors.Is(err, ErrLimit) {
		t.Errorf("a new connection besides an earlier one: %v, want a limit", err)
	}
	if err := l.BeginLock(0, 1, true, false); !errors.Is(err, ErrLimit) {
		t.Errorf("a new LOCK besides an earlier one: %v, want a limit", err)
	}
	l.Disconnect(0, connections[1])
	l.EndLock(0, 1, true, false)
	if err := l.AdmitConnection(0); err != nil {
		t.Errorf("a connection after all earlier ones have ended: %v", err)
	}
	if err := l.AdmitConnection(0); !errors.Is(err, ErrLimit) {
		t.Errorf("a connection besides one that is not open yet: %v, want a limit", err)
	}
	l.Connect(0, connections[2], false)
	if err := l.BeginLock(0, 1, true, false); err != nil {
		t.Errorf("a LOCK after all earlier ones were answered: %v", err)
	}
	l.Disconnect(0, connections[2])
	l.EndLock(0, 1, true, false)
	if len(l.users) != 0 {
		t.Errorf("%d users with no usage are remembered", len(l.users))
	}
}

func TestDismissedConnectionIsNotCounted(t *testing.T) {
	l := NewLimits(config.Limits{ConnectionsPerUser: 1})
	for range 3 {
		if err := l.AdmitConnection(1000); err != nil {
			t.Fatal(err)
		}
		if err := l.AdmitConnection(1000); err == nil {
			t.Error("a second connection is admitted, want one")
		}
		l.DismissConnection(1000)
	}
	if n := l.Connections(); n != 0 || len(l.users) != 0 {
		t.Errorf("%d connections and %d users are counted, want none", n, len(l.users))
	}
}

// waiters_per_user also bounds the WHO, EXTEND and RESUME of a user that are in progress.
func TestQuestionsAreBounded(t *testing.T) {
	l := NewLimits(config.Limits{WaitersPerUser: 2})
	for range 2 {
		if err := l.BeginQuery(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.BeginQuery(1); !errors.Is(err, ErrLimit) {
		t.Errorf("a third query: %v, want a limit", err)
	}
	if err := l.BeginQuery(2); err != nil {
		t.Errorf("a query of another user: %v", err)
	}
	l.EndQuery(1)
	if err := l.BeginQuery(1); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// The error names the limit that was reached: a user with too many waiters has no lease to release.
// If both limits are reached, it names the waiters.
func TestErrorNamesTheLimit(t *testing.T) {
	for _, c := range []struct {
		leases, waiters int // of the user; leases: without waiters
		want            string
	}{
		{0, 3, "a limit of the config is reached: waiters_per_user = 3"},
		{3, 0, "a limit of the config is reached: leases_per_user = 3"},
		{1, 2, "a limit of the config is reached: leases_per_user = 3, of which 2 only wait for a lock"},
		{2, 0, ""},
		{0, 2, ""},
	} {
		l := NewLimits(config.Limits{LeasesPerUser: 3, WaitersPerUser: 3})
		for range c.leases {
			l.BeginLock(7, 1, true, false)
			l.EndLock(7, 1, true, true)
		}
		for range c.waiters {
			l.BeginLock(7, 1, true, false)
		}
		got := ""
		if err := l.BeginLock(7, 1, true, false); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("with %d leases and %d waiters: got %q, want %q", c.leases, c.waiters, got, c.want)
		}
	}
}

// leases_per_user, not waiters_per_user, bounds the LOCKs in progress that do not wait.
func TestLocksThatDoNotWaitAreBounded(t *testing.T) {
	l := NewLimits(config.Limits{LeasesPerUser: 2, WaitersPerUser: 1})
	for range 2 {
		if err := l.BeginLock(7, 1, false, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.BeginLock(7, 1, false, false); !errors.Is(err, ErrLimit) {
		t.Errorf("a third LOCK in progress: %v, want a limit", err)
	}
	l.EndLock(7, 1, false, false)
	l.EndLock(7, 1, false, false)
	if len(l.users) != 0 {
		t.Errorf("%d users with no usage are remembered", len(l.users))
	}
}

// The bound on the connections of all users also counts connections from before a restart.
func TestConnectionsAreBounded(t *testing.T) {
	l := NewLimits(config.Limits{Connections: 3})
	for uid := range 2 {
		if err := l.AdmitConnection(uid); err != nil {
			t.Fatal(err)
		}
	}
	one := l.Connect(0, &openConn{}, true)
	if l.Connections() != 3 {
		t.Errorf("%d connections are counted, want 3: a restored one, and two admitted ones", l.Connections())
	}
	if another := l.Connect(0, &openConn{}, false); l.Connections() != 3 || one != another {
		t.Errorf("%d connections are counted, want 3, and one LIST of a user at a time", l.Connections())
	}
	if err := l.AdmitConnection(2); !errors.Is(err, ErrLimit) {
		t.Errorf("a fourth connection: %v, want a limit", err)
	}
}

// Leases from before a restart count, with their reentrant LOCKs. A reentrant LOCK that was allowed
// before the restart is not refused.
func TestRestoredLeasesAreCounted(t *testing.T) {
	l := NewLimits(config.Limits{LeasesPerUser: 3})
	l.Restore(7, 2)
	for range 2 {
		if err := l.AddReentrant(7, true); err != nil {
			t.Errorf("a reentrant LOCK from before the restart: %v", err)
		}
	}
	if l.RemoveReentrant(7, 1); !errors.Is(l.AddReentrant(7, false), ErrLimit) || !errors.Is(l.BeginLock(7, 1, false, false), ErrLimit) {
		t.Error("a fourth lease is allowed")
	}
}

// RememberLost counts lost leases of a user that has nothing else, too. If leases are not bounded,
// lost leases are not either.
func TestLostLeasesAreCounted(t *testing.T) {
	for bound, want := range map[int]bool{3: true, 0: false} {
		l := NewLimits(config.Limits{LeasesPerUser: bound})
		for range 3 {
			if l.RememberLost(7) {
				t.Errorf("leases_per_user = %d: one of three lost leases is too many", bound)
			}
		}
		if got := l.RememberLost(7); got != want {
			t.Errorf("leases_per_user = %d: a fourth lost lease is too many: %v, want %v", bound, got, want)
		}
	}
}
