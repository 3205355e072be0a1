package daemon

import (
	"time"

	"github.com/redlockd/redlockd/ipc/server"
)

// This file is what a session notes of its connection for the next process (it is an
// server.Journal), and what it knows of the time before.

// Asked notes a request that takes time, before it begins. (One that is begun again
// is noted already.)
func (s *session) Asked(call *server.Call, line []byte, rest *server.Rest) {
	if s.d.ledger == nil {
		return
	}
	call.Number = s.d.ledger.next()
	r := &pastAsk{number: call.Number, conn: s.number, since: s.d.clock(), line: line}
	if rest != nil {
		r.changed, r.change = true, pastRestOf(*rest)
	}
	s.d.ledger.ask(r)
}

// Answered notes that the client is about to hear the answer: the request is not
// begun again, even if that does not reach it.
func (s *session) Answered(call *server.Call) { s.d.ledger.answered(call.Number) }

// Rest notes what was read and has not begun.
func (s *session) Rest(rest server.Rest) { s.d.ledger.rest(s.number, rest) }

// replay is a request of before a restart that is begun again.
type replay struct {
	since    time.Duration // BootTime at which it came
	gaveBack []string      // of an UNLOCK: what it had given back by then
}

// since is when a request came: one of before came to an earlier process.
func (s *session) since(call *server.Call) time.Duration {
	if before, ok := s.replays[call.Number]; ok && call.Replayed {
		return before.since
	}
	return s.d.clock()
}

// gaveBack is what an UNLOCK of before a restart had given back before its answer
// was lost.
func (s *session) gaveBack(call *server.Call) []string {
	if !call.Replayed {
		return nil
	}
	return s.replays[call.Number].gaveBack
}
