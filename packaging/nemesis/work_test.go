package main

import (
	"os/exec"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The earlier holder is paused between its read and its write, past its deadline. The next holder
// reads, the earlier one writes, and then the next one writes: one update is lost, unless the store
// refuses the earlier token.
func TestPausedHolderLosesUnfencedUpdates(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	server, err := redlocktest.LaunchRedis(t.TempDir(), redlocktest.TCP())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	s := newStore(server.Addr())
	defer s.db.Close()
	begin := func(token int) *work {
		t.Helper()
		did, err := s.begin(a(1, 0, 1, token))
		if err != nil {
			t.Fatal(err)
		}
		return did
	}
	end := func(did *work) {
		t.Helper()
		if err := s.end(did); err != nil {
			t.Fatal(err)
		}
	}
	end(begin(1))
	paused := begin(2)
	next := begin(3)
	end(paused)
	end(next)
	end(begin(2)) // this holder was paused before its read
	got, err := s.count(t.Context())
	if want := (workCount{writes: 4, lost: 1, fencedWrites: 2, refused: 2}); err != nil || got != want {
		t.Errorf("counted %+v, %v; want %+v", got, err, want)
	}
	if len(got.violations()) > 0 {
		t.Error("a violation, although only unfenced updates were lost")
	}
	got.fencedLost = 1
	if len(got.violations()) != 1 {
		t.Error("no violation, although a fenced update was lost")
	}
}
