package daemon

import (
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc/server"
)

// This file is what a session notes of its connection for the next process (it is an
// server.Journal), and what it knows of the time before.

var _ server.Journal = (*session)(nil)

// RecordRequest records a request that takes time, before it begins. (One that is begun again
// is noted already.)
func (s *session) RecordRequest(call *server.Call, line []byte, rest *server.UnreadChange) {
	if !s.d.journal.IsOpen() {
		return
	}
	call.Number = s.d.journal.NextNumber()
	r := &state.Request{Number: call.Number, Conn: s.number, Since: s.d.clock(), Line: line}
	if rest == nil {
		s.d.journal.RequestBegun(r, nil)
		return
	}
	unread := unreadChange(rest)
	s.d.journal.RequestBegun(r, &unread)
}

// RecordAnswer records that the client is about to hear the answer: the request is not
// begun again, even if that does not reach it.
func (s *session) RecordAnswer(call *server.Call) { s.d.journal.Answered(call.Number) }

// RecordUnread records what was read and has not begun.
func (s *session) RecordUnread(rest server.UnreadChange) {
	s.d.journal.Unread(s.number, unreadChange(&rest))
}

func unreadChange(rest *server.UnreadChange) state.UnreadChange {
	return state.UnreadChange{Drop: rest.Drop, Keep: rest.Keep, Add: rest.Add, Skipping: rest.Skipping}
}

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
