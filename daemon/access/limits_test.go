package access

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
)

// openConn is a connection whose client has read all answers. The field gives each one its own
// address.
type openConn struct{ _ int }

func (*openConn) Unread() int { return 0 }

// Limits counts connections from before a restart. It does not refuse them if the limits are lower now.
func TestLimitsAfterARestart(t *testing.T) {
	l := NewLimits(config.Limits{Connections: 1, ConnectionsPerUser: 1})
	connections := []*openConn{{}, {}, {}}
	for _, c := range connections[:2] {
		l.Connect(0, c, true)
	}
	l.Disconnect(0, connections[0])
	if err := l.AdmitConnection(0); !errors.Is(err, locktable.ErrLimit) {
		t.Errorf("a new connection besides an earlier one: %v, want a limit", err)
	}
	l.Disconnect(0, connections[1])
	if err := l.AdmitConnection(0); err != nil {
		t.Errorf("a connection after all earlier ones have ended: %v", err)
	}
	if err := l.AdmitConnection(0); !errors.Is(err, locktable.ErrLimit) {
		t.Errorf("a connection besides one that is not open yet: %v, want a limit", err)
	}
	l.Connect(0, connections[2], false)
	l.Disconnect(0, connections[2])
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
	if err := l.BeginQuery(1); !errors.Is(err, locktable.ErrLimit) {
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
	if err := l.AdmitConnection(2); !errors.Is(err, locktable.ErrLimit) {
		t.Errorf("a fourth connection: %v, want a limit", err)
	}
}
