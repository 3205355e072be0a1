package main

import (
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// If the command has already released the lock, redlock run does not report an error.
func TestCommandReleases(t *testing.T) {
	t.Parallel()
	const gone = "ERR NOTHELD : there is no lease with this id here (any more)"
	for _, verbose := range []bool{false, true} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Hour), ipc.VerbUnlock: cmdtest.Reply(gone)})
		flags, want := []string{}, ""
		if verbose {
			flags, want = []string{"--verbose"}, `lock "job": the command had released it`
		}
		code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(flags, "sh", "-c", "exit 6")...)
		cmdtest.CheckExit(t, code, 6, stderr, want)
	}
}

// If the command released the lock, it goes on. But a restarted daemon may not know the lease
// because it lost its data. Then redlock run treats the lock as lost.
func TestForgottenByRestartedDaemon(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"the same": 6, "restarted": exit.Lost, "another connection": exit.Lost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan *cmdtest.Fake, 1)
			back := sync.OnceFunc(func() { (<-started).Broadcast("BACK") })
			end := sync.OnceFunc(func() { (<-started).HangUp() })
			f := cmdtest.StartFake(t, cmdtest.Replies{
				ipc.VerbLock:   cmdtest.GrantFor(time.Second),
				ipc.VerbUnlock: cmdtest.Reply("ERR NOTHELD : gone"),
				ipc.VerbResume: cmdtest.GrantFor(time.Second),
				ipc.VerbCheck: func() []string {
					switch name {
					case "restarted":
						back()
					case "another connection":
						end()
					}
					return []string{"ERR NOTHELD : gone"}
				},
			})
			started <- f
			got, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", "sleep 2 & wait; exit 6")...)
			if got != code {
				t.Errorf("exit code %d, want %d; stderr: %s", got, code, stderr)
			}
		})
	}
}
