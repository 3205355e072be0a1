package session

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// Begin is the one switch over verbs, in the order of the protocol's table. It answers what
// it can from memory, and returns a Work for the rest.
func (s *session) Begin(call *server.Call) server.Work {
	s.traceRequest(call)
	if !call.Replayed && s.tooFast(call.Verb) {
		return s.refuse(call, s.host.Limits.TooFast())
	}
	if endsWithClient(call) && call.IsGone() {
		return s.refuse(call, server.ErrGone) // even if the client sent the whole request
	}
	if err := access.Permit(s.host.access.Load(), s.requester, call.Verb, call.Names); err != nil {
		return s.deny(call, err)
	}
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return s.lock(call)
	case ipc.VerbUnlock:
		return s.unlock(call)
	case ipc.VerbCancel:
		s.conn.Cancel(call.Words[0])
		return reply(call, call.OK())
	case ipc.VerbAdmit:
		return s.admit(call)
	case ipc.VerbNodes:
		return s.nodes(call)
	case ipc.VerbExtend:
		return s.bounded(call, s.extend)
	case ipc.VerbCheck:
		return s.check(call)
	case ipc.VerbResume:
		return s.bounded(call, s.resume)
	case ipc.VerbBeat:
		return s.beat(call)
	case ipc.VerbWho:
		return s.bounded(call, s.who)
	case ipc.VerbList:
		return s.bounded(call, s.list)
	case ipc.VerbStatus:
		return s.status(call)
	case ipc.VerbForce:
		return s.force(call)
	case ipc.VerbPing:
		return reply(call, call.OK())
	case ipc.VerbHello:
		return s.hello(call)
	case ipc.VerbHelp:
		return s.help(call)
	case ipc.VerbQuit:
		call.Quit()
		return reply(call, call.OK())
	default: // a defect: the switch lacks a verb
		return s.refuse(call, fmt.Errorf("%v: nothing here answers it", call.Verb))
	}
}

// deny answers with the error of Permit.
func (s *session) deny(call *server.Call, err error) server.Work {
	s.host.logDenied(s, call.Verb, err)
	return s.refuse(call, err)
}

// tooFast reports whether requests_per_second refuses the request. It never refuses a
// request that releases a lease or keeps one.
func (s *session) tooFast(verb ipc.Verb) bool {
	perSecond := s.host.Limits.RequestRate()
	switch {
	case perSecond == 0:
		return false
	case verb == ipc.VerbUnlock, verb == ipc.VerbCancel, verb == ipc.VerbQuit, verb == ipc.VerbBeat, verb == ipc.VerbExtend:
		return false
	}
	return !s.rate.Allow(perSecond, s.host.Clock())
}

// endsWithClient reports whether the request has no effect once its client is gone.
func endsWithClient(call *server.Call) bool {
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return call.Hold == ipc.HoldConn
	case ipc.VerbCheck, ipc.VerbWho, ipc.VerbList, ipc.VerbStatus, ipc.VerbPing, ipc.VerbHello, ipc.VerbHelp:
		return true
	}
	return false
}

func (s *session) traceRequest(call *server.Call) {
	if s.host.Log.IsTrace() {
		s.host.Log.Trace("request", s.requestFacts(call)...)
	}
}

// requestFacts returns the facts of a request for the log.
func (s *session) requestFacts(call *server.Call) []any {
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

// logDenied logs a denied request: at info if it would end other clients' locks, else at debug. At
// info it logs at most once a second, so that a client cannot fill the log.
func (d *Host) logDenied(s *session, verb ipc.Verb, err error) {
	level := hclog.Debug
	if (verb == ipc.VerbForce || verb == ipc.VerbAdmit || verb == ipc.VerbNodes) && d.deniedLogged.allow(d.Clock(), time.Second) {
		level = hclog.Info
	}
	d.Log.Log(level, "denied", "user", s.user, "pid", s.pid, "uid", s.uid, "error", err)
}
