package session

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// A daemon in a container of its own cannot see processes outside of it. The kernel reports pid 0
// for them, and the daemon does not show that number.
func TestUnseenProcess(t *testing.T) {
	s := &session{host: &Host{Clock: func() time.Duration { return 0 }}}
	for _, pid := range []int{0, 7} {
		var held ipc.Response
		holderFields(&held, redlock.Holder{Host: "web3", PID: pid, User: "alice"})
		listed := s.listLine(new(server.Call), []string{"a"}, &locktable.Waiter{Requester: &locktable.Requester{PID: pid, User: "alice"}}, locktable.Kind{}, "held", 0)
		for what, r := range map[string]*ipc.Response{"HELD": &held, "LIST": listed} {
			if got, is := r.Int64("pid"); is != (pid != 0) || got != int64(pid) {
				t.Errorf("%s, process %d: %s", what, pid, r.AppendTo(nil))
			}
			if got, _ := r.Get("user"); got != "alice" {
				t.Errorf("%s, process %d: %s", what, pid, r.AppendTo(nil))
			}
		}
	}
	for want, a := range map[string]*locktable.Requester{
		"alice":                  {User: "alice"},
		"alice (owner x)":        {User: "alice", Owner: "x"},
		"alice (pid 7)":          {User: "alice", PID: 7},
		"alice (pid 7, owner x)": {User: "alice", PID: 7, Owner: "x"},
	} {
		if got := a.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
