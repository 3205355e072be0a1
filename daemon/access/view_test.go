package access

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// A client with any right on a lock may know its name, and other clients may not. Without rules, all
// clients may.
func TestViewKnows(t *testing.T) {
	rules := rulesOf(t, testRules)
	for _, test := range []struct {
		rules *config.Access
		who   Requester
		name  string
		want  string
	}{
		{rules, Requester{UID: 1, Groups: []uint32{4102}}, "batch/secret", "batch/secret"}, // may lock
		{rules, Requester{UID: 4003}, "batch/a", "batch/a"},                                // may inspect
		{rules, Requester{UID: 4004}, "what/ever", "what/ever"},                            // may force
		{rules, Requester{UID: 4003}, "batch/secret", HiddenLock},
		{nil, Requester{UID: 4003}, "batch/secret", "batch/secret"},
	} {
		v := View{test.rules, test.who}
		if name, label := v.Name(test.name), v.Label([]string{test.name}); name != test.want || label != test.want {
			t.Errorf("%+v: for %s got the name %q and the label %q, want %q", test.who, test.name, name, label, test.want)
		}
	}
}

// LIST shows a client the locks of its own user. If the user is unknown, they could be another
// user's, so it shows none.
func TestViewShowsLocksOfTheOwnUser(t *testing.T) {
	rules := rulesOf(t, testRules)
	for _, test := range []struct {
		rules  *config.Access
		uid    int
		holder int
		want   int // how many names
	}{{rules, 4009, 4009, 1}, {rules, 4009, 4008, 0}, {rules, UnknownUser, UnknownUser, 0}, {nil, 4009, 4008, 1}} {
		if got := (View{test.rules, Requester{UID: test.uid}}).VisibleNames(test.holder, []string{"what/ever"}); len(got) != test.want {
			t.Errorf("user %d sees %v of user %d, want %d names", test.uid, got, test.holder, test.want)
		}
	}
}
