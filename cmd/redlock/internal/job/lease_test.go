package job

import (
	"context"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// If the daemon answers CHECK or UNLOCK with NOTHELD, the lease was released. If it answers RESUME
// so, after a restart, the lease was lost.
func TestReleasedByCommand(t *testing.T) {
	notHeld := func(op string) error { return &client.Error{Op: op, Code: "NOTHELD"} }
	over := func(err error) error { return &client.Error{Op: "lease", Code: "LOST", Err: err} }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{over(notHeld("check")), true},
		{notHeld("unlock"), true},
		{over(notHeld("resume")), false},
		{over(&client.Error{Op: "check", Code: "LOST"}), false},
		{over(nil), false},
		{context.DeadlineExceeded, false},
	} {
		if got := releasedByCommand(test.err); got != test.want {
			t.Errorf("%v: releasedByCommand is %v, want %v", test.err, got, test.want)
		}
	}
}
