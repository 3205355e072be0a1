package daemon

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// quorumState reports a lost quorum once, and its return once. If there always was a quorum, it
// reports nothing.
func TestQuorate(t *testing.T) {
	const down, ready = redlock.NodeDown, redlock.NodeReady
	type event struct {
		node  string
		state redlock.NodeState
		lacks bool // call noteLossLogged after the event
		want  string
	}
	for name, events := range map[string][]event{
		"from the start on":      {{"a", ready, false, ""}, {"b", ready, false, ""}, {"c", ready, false, ""}, {"c", down, false, ""}, {"c", ready, false, ""}},
		"late at the start":      {{"a", ready, false, ""}, {"b", redlock.NodeQuarantined, true, ""}, {"b", ready, false, "back after 1s"}, {"c", ready, false, ""}},
		"lost":                   {{"a", ready, false, ""}, {"b", ready, false, ""}, {"b", redlock.NodeRefused, false, "lost"}, {"a", down, false, ""}, {"b", ready, false, ""}, {"c", ready, false, "back after 3s"}},
		"recovered before lacks": {{"a", ready, false, ""}, {"b", ready, true, ""}, {"c", down, false, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var q quorumState
			for i, e := range events {
				now := time.Duration(i) * time.Second
				_, lost, back, lasted := q.update(redlock.NodeStatus{Name: e.node, State: e.state}, 2, now)
				if got := quorateWord(lost, back, lasted); got != e.want {
					t.Errorf("event %d, %v: got %q, want %q", i, e, got, e.want)
				}
				if e.lacks {
					q.noteLossLogged(now)
				}
			}
		})
	}
}

func quorateWord(lost, back bool, lasted time.Duration) string {
	switch {
	case lost:
		return "lost"
	case back:
		return "back after " + lasted.String()
	}
	return ""
}

// The log says from when to when no lock could be taken.
func TestLogOfQuorum(t *testing.T) {
	t.Parallel() // it mostly waits
	var log daemontest.Log
	d := startDaemon(t, 3, nil).another(logging.New(&log, hclog.Info, logging.Text))
	d.dial().Until("STATUS", `spare=1\b`)
	d.Nodes.Servers[0].Kill()
	d.Nodes.Servers[1].Kill()
	log.Await(t, "[ERROR] quorum lost: ")
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	d.Nodes.Admit(t)
	log.AwaitThat(t, "a quorum again", regexp.MustCompile(`\[INFO\]  there is a quorum: .*quorum=2 nodes=3 after=\d`).MatchString)
	for _, word := range []string{"quorum lost", "there is a quorum"} {
		if n := strings.Count(log.String(), word); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", word, n, log.String())
		}
	}
}
