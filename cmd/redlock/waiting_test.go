package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

// If the grant arrives while redlock run asks for the holder, it prints nothing about the wait.
func TestGrantWhileAsked(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady), ipc.VerbUnlock: cmdtest.Reply("OK")})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"--verbose"}, "true")...)
	lock := f.ExpectRequest(ipc.VerbLock)
	f.ExpectLook(ipc.VerbStatus)
	f.ExpectLook(ipc.VerbWho)
	f.Grant(lock)
	p.ExpectExit(0)
	if said := p.Stderr(); strings.Contains(said, "waiting") {
		t.Errorf("stderr is %q", said)
	}
}
