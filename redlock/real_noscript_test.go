package redlock_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// No request fails if the scripts are flushed on all nodes before it. Guards node.Lane.resend.
func TestRealScriptFlush(t *testing.T) {
	s := startServers(t, 5)
	flush := func() {
		t.Helper()
		for i := range s.all {
			s.do(i, "SCRIPT", "FLUSH")
		}
	}
	request := redlock.Request{Name: "x", TTL: realTTL}
	for range 5 {
		flush()
		l := s.acquire(request)
		flush()
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Errorf("extend: %v", err)
		}
		flush()
		if holders, err := s.q.Who(t.Context(), "x"); err != nil || len(holders) != 1 {
			t.Errorf("who: got %v and %v, want one holder", holders, err)
		}
		flush()
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		s.acquire(request)
		flush()
		if _, err := s.q.Force(t.Context(), "x"); err != nil {
			t.Errorf("force: %v", err)
		}
	}
	s.wantNoKeys()
}

// A node that runs another program's script (BUSY) executes nothing, and attempts do not wait for
// it. It votes again when the script has ended.
func TestRealBusyScript(t *testing.T) {
	s := startServers(t, 3)
	s.do(0, "CONFIG", "SET", "busy-reply-threshold", "10")
	ask := func(command ...string) error {
		reply, err := s.all[0].Do(command...)
		return cmp.Or(err, reply.Err)
	}
	done := make(chan struct{})
	go func() { // ends with SCRIPT KILL
		defer close(done)
		ask("EVAL", "while true do end", "0")
	}()
	s.eventually("the node is busy", func() bool {
		err := ask("GET", "x")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	s.pair("x")
	s.eventually("the script is killed", func() bool { return ask("SCRIPT", "KILL") == nil })
	<-done
	s.eventually("all nodes are used again", func() bool { return s.q.Status().Ready == 3 })
	s.pair("x")
	s.wantNoKeys()
}
