package server

import (
	"slices"

	"github.com/redlockd/redlockd/ipc"
)

// CancelVerbs ends the contexts of all calls in progress with one of the verbs. Later calls are not
// affected: the caller makes its sessions refuse them first.
func (s *Server) CancelVerbs(cause error, verbs ...ipc.Verb) {
	for _, c := range s.allConns() {
		c.inflight.cancelVerbs(cause, verbs)
	}
}

func (cs *inflight) cancelVerbs(cause error, verbs []ipc.Verb) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cancel := func(call *Call) {
		if slices.Contains(verbs, call.Verb) {
			call.cancelWith(cause)
		}
	}
	for _, call := range cs.tagged {
		cancel(call)
	}
	if cs.untagged != nil {
		cancel(cs.untagged)
	}
}
