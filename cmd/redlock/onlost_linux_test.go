package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// If the lock is lost, redlock run runs the --on-lost command once, with the reason in the
// environment. That command outlives the command under the lock. If the lock is released, it does
// not run.
func TestOnLost(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(3 * time.Second)})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"--on-lost", `trap "" TERM; sleep 1; echo "told $REDLOCK_NAME $REDLOCK_FENCE: $REDLOCK_LOST"`}, "sh", "-c", "echo up $$; exec cat")...)
	p.AwaitPuppet()
	p.ExpectExit(exit.Lost)
	if out := p.ReadAll(); strings.Count(out, "told job 77: ") != 1 || !strings.Contains(out, "LOST") {
		t.Errorf("--on-lost printed %q", out)
	}
	f = cmdtest.StartFake(t, cmdtest.Granting())
	code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{"--on-lost", "echo told"}, "true")...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if stdout != "" {
		t.Errorf("without a loss it printed %q", stdout)
	}
}

// The --on-lost command also runs if redlock run learns of the loss only when the command has
// ended.
func TestOnLostAtTheEnd(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("ERR LOST lease=secret reason=expired : job: lost (expired)")})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{"--on-lost", "echo told"}, "true")...)
	cmdtest.CheckExit(t, code, exit.Lost, stderr, "lost (expired)")
	if stdout != "told\n" {
		t.Errorf("--on-lost printed %q", stdout)
	}
}
