package session

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// The error names the lock as the caller named it. The original error belongs to other waiters too,
// so it stays unchanged.
func TestRenamedErrorHidesNames(t *testing.T) {
	rules, p := loadRules(t, exampleRules), newTestWaiter("web/a")
	held := &redlock.HeldError{Name: "web/a,batch/secret"}
	if got := renameError(access.View{Rules: rules}, held, p).Error(); strings.Contains(got, "secret") || !strings.Contains(held.Error(), "secret") {
		t.Errorf("got %q from %q", got, held)
	}
	if got := renameError(access.View{}, held, p); got != held {
		t.Errorf("without rules: %v, want %v", got, held)
	}
}

// A deadlock error shows only names that the caller may know. The original error stays unchanged,
// because other clients of the cycle may know the names.
func TestRedactedDeadlockHidesNames(t *testing.T) {
	met := &locktable.DeadlockError{Cycle: []locktable.WaitsFor{{Waiter: &locktable.Requester{}, Ahead: &locktable.Requester{}, Name: "secret"}}}
	got := redact(access.View{Rules: loadRules(t, exampleRules)}, met)
	if strings.Contains(got.Error(), "secret") || met.Cycle[0].Name != "secret" {
		t.Errorf("got %q from %q", got, met)
	}
	if got := redact(access.View{}, met); got != error(met) {
		t.Errorf("without rules: %v, want %v", got, met)
	}
}

// The daemon hides the name of the lock that blocks an earlier waiter if the client may not know
// it.
func TestWhyBlockedHidesNames(t *testing.T) {
	s := &session{host: &Host{}, requester: access.Requester{UID: 4001}}
	s.host.access.Store(loadRules(t, exampleRules))
	for _, held := range []bool{true, false} {
		way := locktable.Obstacle{Waiter: newTestWaiter("web/a"), Blockage: &locktable.Blockage{Name: "batch/secret", Requester: &locktable.Requester{}, Held: held}}
		if got := s.blockedText(way); !strings.Contains(got, access.HiddenLock) || strings.Contains(got, "secret") {
			t.Errorf("held %v: got %q, want no name", held, got)
		}
	}
}

func newTestWaiter(names ...string) *locktable.Waiter {
	return &locktable.Waiter{Names: names, Requester: &locktable.Requester{}}
}
