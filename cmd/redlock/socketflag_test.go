package main

import (
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// Every command has --socket, before or after its name. It takes precedence over REDLOCK_SOCKET.
// The command under the lock finds the same daemon.
func TestSocketFlag(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	code, stdout, stderr := cmdtest.Run(t, "/nowhere", "run", "--socket", f.Socket, "job", "--", "sh", "-c", "echo $REDLOCK_SOCKET")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if stdout != f.Socket+"\n" {
		t.Errorf("REDLOCK_SOCKET of the command is %q, want %q", stdout, f.Socket)
	}
	code, _, stderr = cmdtest.Run(t, "/nowhere", "--socket="+f.Socket, "lock", "job")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	code, _, stderr = cmdtest.Run(t, f.Socket, "who", "--socket", "/nowhere/s", "job")
	cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "/nowhere/s")
	code, _, stderr = cmdtest.Run(t, f.Socket, "--socket", "", "status")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "must be the path of a socket")
}
