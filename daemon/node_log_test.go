package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// A quorum that comes and goes is logged once in a minute, and then with the number of its losses. If it
// is away then, its return is logged.
func TestFlappingQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out daemontest.Log
		d := &daemon{Host: session.NewHost(session.HostOptions{Config: config.Dev(), Log: logging.New(&out, hclog.Error, logging.Text)})}
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { d.watchNodes(ctx) })
		see := func(states ...redlock.NodeState) {
			for _, state := range states {
				for _, n := range d.Cfg.Quorum.Nodes {
					d.observeNode(redlock.NodeStatus{Name: n.Name, State: state, Reason: errors.New("EOF")})
				}
				time.Sleep(time.Second)
			}
		}
		expect := func(what string, lines ...string) {
			t.Helper()
			synctest.Wait()
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(got) != len(lines) {
				t.Fatalf("%s: %d lines, want %d:\n%s", what, len(got), len(lines), out.String())
			}
			for i, want := range lines {
				if !strings.Contains(got[i], want) {
					t.Errorf("%s, line %d: %s: want %q", what, i, got[i], want)
				}
			}
		}
		see(redlock.NodeReady)
		for range 10 {
			see(redlock.NodeDown, redlock.NodeReady)
		}
		first := "[ERROR] quorum lost: no lock can be taken"
		expect("within a minute", first)
		time.Sleep(time.Minute)
		again := "[ERROR] quorum lost repeatedly, because nodes come and go: lines like the last ones were left out: losses=9"
		expect("after a minute", first, again)
		time.Sleep(10 * time.Minute)
		expect("while nothing happens", first, again)
		see(redlock.NodeDown, redlock.NodeReady, redlock.NodeDown)
		time.Sleep(2 * time.Minute)
		expect("away in the end", first, again, first, `losses=1 now="no lock can be taken"`)
		d.quorate.mu.Lock()
		if !d.quorate.isLossLogged {
			t.Error("the return of this quorum would not be logged")
		}
		d.quorate.mu.Unlock()
		stop()
		watching.Wait()
	})
}

// A node that comes and goes several times a second is logged once with each reason in a minute, and
// then with the number of lines that were left out, its state and the reason. Ports differ, but not
// the line. Other nodes are logged as before, and so is the same node a minute later.
func TestFlappingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out daemontest.Log
		d := &daemon{Host: session.NewHost(session.HostOptions{Config: config.Dev(), Log: logging.New(&out, hclog.Info, logging.Text)})}
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { d.watchNodes(ctx) })
		flap := func(times int) {
			for i := range times {
				d.observeNode(redlock.NodeStatus{Name: "c", Address: "c:1", State: redlock.NodeReady})
				time.Sleep(time.Second / 2)
				d.observeNode(redlock.NodeStatus{Name: "c", Address: "c:1", State: redlock.NodeDown, Reason: fmt.Errorf("read from port %d: reset", 40000+i)})
				time.Sleep(time.Second / 2)
			}
		}
		expect := func(what string, lines ...string) {
			t.Helper()
			synctest.Wait()
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(got) != len(lines) {
				t.Errorf("%s: %d lines, want %d:\n%s", what, len(got), len(lines), out.String())
				return
			}
			for i, want := range lines {
				if !strings.Contains(got[i], want) {
					t.Errorf("%s, line %d: %s: want %q", what, i, got[i], want)
				}
			}
		}
		ready, reset := "node is ready: node=c", `node is down: node=c address=c:1 reason="read from port 40000: reset"`
		flap(45)
		first := []string{ready, reset}
		expect("within a minute", first...)
		d.observeNode(redlock.NodeStatus{Name: "d", State: redlock.NodeDown, Reason: errors.New("EOF")})
		first = append(first, "node is down: node=d")
		expect("another node", first...)
		time.Sleep(16 * time.Second)
		first = append(first, `node changes repeatedly: lines like the last ones were left out: node=c address=c:1 lines=88 state=down reason="read from port 40044: reset"`)
		expect("after a minute", first...)
		time.Sleep(10 * time.Minute)
		expect("while nothing happens", first...)
		flap(1)
		first = append(first, ready, reset)
		expect("later", first...)
		flap(1)
		stop()
		watching.Wait()
		expect("when the daemon stops", append(first, "lines=2 state=down")...)
	})
}
