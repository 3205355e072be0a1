package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/redlock"
)

// A node can be down for one reason after another: its connection ended, and then its password was
// wrong. Each reason is logged once, up to maxReasons.
func TestNodeStaysDownForAnotherReason(t *testing.T) {
	var out daemontest.Log
	d := &daemon{Host: session.NewHost(session.HostOptions{Config: config.Dev(), Log: logging.New(&out, hclog.Info, logging.Text)})}
	var seen loggedNode
	see := func(state redlock.NodeState, reason string) string {
		before := len(out.String())
		s := redlock.NodeStatus{Name: "c", Address: "c:1", State: state}
		if reason != "" {
			s.Reason = errors.New(reason)
		}
		warnings, isNews := seen.update(s)
		d.logNode(s, warnings, isNews)
		return out.String()[before:]
	}
	for i, step := range []struct {
		state  redlock.NodeState
		reason string
		want   string // "": nothing
	}{
		{redlock.NodeReady, "", "[INFO]  node is ready: node=c"},
		{redlock.NodeDown, "EOF", "[WARN]  node is down: node=c address=c:1 reason=EOF"},
		{redlock.NodeDown, "read from port 40001: reset", "[WARN]  node is down: node=c address=c:1 reason=\"read from port 40001: reset"},
		{redlock.NodeDown, "read from port 40002: reset", ""},
		{redlock.NodeDown, "EOF", ""},
		{redlock.NodeDown, "no such file", "no such file"},
		{redlock.NodeDown, "a fourth", "a fourth"},
		{redlock.NodeDown, "a fifth", ""},
		{redlock.NodeReady, "", "[INFO]  node is ready: node=c"},
		{redlock.NodeDown, "EOF", "[WARN]  node is down: node=c address=c:1 reason=EOF"},
	} {
		if got := see(step.state, step.reason); !strings.Contains(got, step.want) || (step.want == "") != (got == "") {
			t.Errorf("step %d, %s, %q: logged %q, want %q", i, step.state, step.reason, got, step.want)
		}
	}
}
