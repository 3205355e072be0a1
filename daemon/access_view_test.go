package daemon

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// Who may do anything with a lock, whatever that is, knows its name; nobody else does, but
// without rules.
func TestViewKnows(t *testing.T) {
	rules := rulesOf(t, testRules)
	for _, test := range []struct {
		rules *config.Access
		who   caller
		name  string
		want  string
	}{
		{rules, caller{uid: 1, groups: []uint32{4102}}, "batch/secret", "batch/secret"}, // may lock
		{rules, caller{uid: 4003}, "batch/a", "batch/a"},                                // may inspect
		{rules, caller{uid: 4004}, "what/ever", "what/ever"},                            // may force
		{rules, caller{uid: 4003}, "batch/secret", hiddenLock},
		{nil, caller{uid: 4003}, "batch/secret", "batch/secret"},
	} {
		v := view{test.rules, test.who}
		if name, label := v.name(test.name), v.label(newTestWaiter(test.name)); name != test.want || label != test.want {
			t.Errorf("%+v: %s is called %q, and %q of a place; want %q", test.who, test.name, name, label, test.want)
		}
	}
}

// What is one's own is shown, unless nobody knows who one is: then it may be anybody's.
func TestViewShowsOnesOwn(t *testing.T) {
	rules := rulesOf(t, testRules)
	for _, test := range []struct {
		rules *config.Access
		uid   int
		whose int
		want  int // how many names
	}{{rules, 4009, 4009, 1}, {rules, 4009, 4008, 0}, {rules, unknownUser, unknownUser, 0}, {nil, 4009, 4008, 1}} {
		p := newTestWaiter("what/ever")
		p.Requester = &waitqueue.Requester{UID: test.whose}
		if got := (view{test.rules, caller{uid: test.uid}}).shows(p); len(got) != test.want {
			t.Errorf("%d is shown %v of %d, want %d names", test.uid, got, test.whose, test.want)
		}
	}
}

// What another one has met is told under the names that the caller gave. The error is
// that one's own as well: it stays as it is.
func TestViewOfWhatWasMet(t *testing.T) {
	rules, p := rulesOf(t, testRules), newTestWaiter("web/a")
	held := &redlock.HeldError{Name: "web/a,batch/secret"}
	if got := (view{rules, caller{}}).met(held, p).Error(); strings.Contains(got, "secret") || !strings.Contains(held.Error(), "secret") {
		t.Errorf("got %q of %q", got, held)
	}
	if got := (view{nil, caller{}}).met(held, p); got != held {
		t.Errorf("without rules: %v, want %v", got, held)
	}
}

// So it is with a deadlock: the others of the cycle may know the names.
func TestViewOfADeadlock(t *testing.T) {
	met := &waitqueue.DeadlockError{Cycle: []waitqueue.WaitsFor{{Waiter: &waitqueue.Requester{}, Ahead: &waitqueue.Requester{}, Name: "secret"}}}
	got := view{rulesOf(t, testRules), caller{}}.veil(met)
	if strings.Contains(got.Error(), "secret") || met.Cycle[0].Name != "secret" {
		t.Errorf("got %q of %q", got, met)
	}
	if got := (view{}).veil(met); got != error(met) {
		t.Errorf("without rules: %v, want %v", got, met)
	}
}

// Who stands behind one that waits himself is not told the name of a lock that is none of
// his business.
func TestWhyHidesNames(t *testing.T) {
	s := &session{d: &daemon{}, caller: caller{uid: 4001}}
	s.d.access.Store(rulesOf(t, testRules))
	for _, held := range []bool{true, false} {
		way := waitqueue.Obstacle{Waiter: newTestWaiter("web/a"), Blockage: &waitqueue.Blockage{Name: "batch/secret", Requester: &waitqueue.Requester{}, Held: held}}
		if got := s.why(way); !strings.Contains(got, hiddenLock) || strings.Contains(got, "secret") {
			t.Errorf("held %v: got %q, want no name", held, got)
		}
	}
}

func newTestWaiter(names ...string) *waitqueue.Waiter {
	return &waitqueue.Waiter{Names: names, Requester: &waitqueue.Requester{}}
}
