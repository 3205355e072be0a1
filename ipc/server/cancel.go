package server

import (
	"slices"

	"github.com/redlockd/redlockd/ipc"
)

// CancelVerbs ends the contexts of all calls in progress with one of the verbs. Later calls are not
// affected: the caller makes its sessions refuse them first.
func (s *Server) CancelVerbs(cause error, verbs ...ipc.Verb) {
	for _, c := range s.allConns() {
		c.inflight.mu.Lock()
		c.inflight.cancelIfLocked(cause, func(call *Call) bool { return slices.Contains(verbs, call.Verb) })
		c.inflight.mu.Unlock()
	}
}
