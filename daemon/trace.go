package daemon

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// At trace level the log has each request, each attempt on the nodes and each answer,
// without the ids of leases and without what a client wrote where it is not well
// formed: that may be one. At any other level that costs a look at the level.

func (s *session) traceRequest(call *server.Call) {
	if s.d.log.IsTrace() {
		s.d.log.Trace("request", s.about(call)...)
	}
}

// answered is for server.Server: of the answers to requests that sessions have begun.
func (d *daemon) answered(conn *server.Conn, call *server.Call, r *ipc.Response) {
	if !d.log.IsTrace() {
		return
	}
	result := "OK"
	if r.Kind == ipc.KindErr {
		result = string(r.Code)
	}
	if s, ok := conn.Session().(*session); ok {
		d.log.Trace("answer", append(s.about(call), "result", result)...)
	}
}

// about are the facts of a request.
func (s *session) about(call *server.Call) []any {
	facts := []any{"verb", call.Verb.String(), "user", s.user, "pid", s.pid, "connection", s.number}
	if call.Tag != "" {
		facts = append(facts, "tag", call.Tag)
	}
	if len(call.Names) > 0 {
		facts = append(facts, "lock", strings.Join(call.Names, ","))
	}
	if len(call.Words) > 0 {
		facts = append(facts, "about", strings.Join(call.Words, " "))
	}
	return facts
}

// traceAttempt is told how one attempt to get a lock ended: with a lease, or why not.
func (d *daemon) traceAttempt(h *holding, lease *redlock.Lease, err error) {
	switch {
	case !d.log.IsTrace():
	case err != nil:
		d.log.Trace("attempt failed", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID, "error", err)
	default:
		d.log.Trace("attempt granted", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID,
			"fence", lease.Fence(), "validity", lease.Validity())
	}
}

func (d *daemon) attemptFailed(h *holding, err error) {
	d.traceAttempt(h, nil, err)
	d.queue.NoteFailure(&h.waiter, err)
}

// logDenied logs at info for what ends others' locks, once a second at most, as the
// one who asks could fill the log with it; and at debug otherwise.
func (d *daemon) logDenied(s *session, verb ipc.Verb, err error) {
	level := hclog.Debug
	if (verb == ipc.VerbForce || verb == ipc.VerbAdmit) && d.deniedLogged.due(d.clock(), time.Second) {
		level = hclog.Info
	}
	d.log.Log(level, "denied", "user", s.user, "pid", s.pid, "uid", s.uid, "error", err)
}

// seldom bounds what is logged. It is for any goroutine.
type seldom struct{ last atomic.Int64 } // BootTime

// due tells whether the pause is over since it was last so.
func (s *seldom) due(now, pause time.Duration) bool {
	last := s.last.Load()
	return (last == 0 || now-time.Duration(last) >= pause) && s.last.CompareAndSwap(last, int64(now))
}
