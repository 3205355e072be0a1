package session

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// The trace log has each request, attempt and answer, but no lease id.
func TestTrace(t *testing.T) {
	var log daemontest.Log
	first := startDaemon(t, 3, longNodeTimeout)
	d := first.anotherWithLog(logging.New(&log, hclog.Trace, logging.Text))
	w := d.dial()
	lease := w.Say("LOCK a%20b owner=x note=why", granted5)[0]
	first.dial().Say("TRY a%20b", `ERR HELD .*`)
	w.Say("CHECK lease="+lease, granted5)
	w.Say("@t1 CHECK c lease="+lease, `@t1 ERR NOTHELD .*`)
	w.Say("UNLOCK lease=%zz"+lease, `ERR OPTION .*`)
	w.Say("TRY a%20b", `ERR HELD .*`)
	for _, want := range []string{
		`[TRACE] request: verb=LOCK user=`, `connection=`, `lock="a b"`, `[TRACE] attempt granted: lock="a b"`, ` fence=`,
		`[TRACE] answer: verb=LOCK `, `tag=t1`, ` lock=c result=NOTHELD`, `result=HELD`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
	for _, secret := range []string{lease, lease[:10]} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log contains the lease id %s:\n%s", secret, log.String())
		}
	}
	first.dial().Say("LOCK other", granted5)
	w.Say("TRY other", `ERR HELD .*`)
	if !strings.Contains(log.String(), "[TRACE] attempt failed: lock=other ") {
		t.Errorf("the log lacks the attempt that failed:\n%s", log.String())
	}
}

// Without the trace level, a trace costs no allocation.
func TestTraceIsCheap(t *testing.T) {
	d := &Host{Log: logging.New(new(bytes.Buffer), hclog.Debug, logging.Text)}
	s, call, h := &session{host: d, user: "web"}, &server.Call{}, &heldLease{}
	call.Verb, call.Names = ipc.VerbLock, []string{"a", "b"}
	r := call.OK()
	if n := testing.AllocsPerRun(100, func() {
		s.traceRequest(call)
		d.traceAnswer(nil, call, r)
		d.traceAttempt(h, nil, nil)
	}); n != 0 {
		t.Errorf("%v allocations for a request, want none", n)
	}
}

// A denied FORCE or ADMIT is logged at level info, at most once a second. Other denials are not.
func TestDeniedIsLogged(t *testing.T) {
	var log daemontest.Log
	now := time.Hour
	d := &Host{Log: logging.New(&log, hclog.Info, logging.Text), Clock: func() time.Duration { return now }}
	s := &session{host: d, user: "web", pid: 7}
	for _, c := range []struct {
		after time.Duration
		verb  ipc.Verb
		lines int
	}{
		{0, ipc.VerbLock, 0}, {0, ipc.VerbForce, 1}, {0, ipc.VerbAdmit, 1}, {time.Second, ipc.VerbAdmit, 2}, {999 * time.Millisecond, ipc.VerbForce, 2},
	} {
		now += c.after
		d.logDenied(s, c.verb, access.ErrDenied)
		if got := strings.Count(log.String(), "[INFO]  denied: user=web pid=7"); got != c.lines {
			t.Errorf("after %v: %d lines, want %d:\n%s", c.verb, got, c.lines, log.String())
		}
	}
}
