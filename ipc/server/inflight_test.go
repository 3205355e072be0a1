package server

import (
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// A call that ends after Freeze may be reused before the connection breaks. The break must not
// cancel the new request.
func TestFrozenCallIsForgotten(t *testing.T) {
	for _, tag := range []string{"", "a"} {
		cs, call := &inflight{}, &Call{Request: ipc.Request{Tag: tag}}
		if err := cs.add(call, DefaultMaxInFlight); err != nil {
			t.Fatal(err)
		}
		cs.freeze()
		if got := cs.beginAnswer(call); got != answerDropped {
			t.Fatalf("tag %q: the verdict is %d, want frozen", tag, got)
		}
		cs.cancelAll(ErrGone)
		if call.cause != nil {
			t.Errorf("tag %q: it is ended with %v", tag, call.cause)
		}
	}
}
