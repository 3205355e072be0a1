package main

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// If redlock run was stopped until after its deadline, it asks the daemon before it ends the
// command. If the daemon has kept the lock meanwhile, the command goes on.
func TestStoppedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	granted := cmdtest.GrantFor(ttl)
	for name, test := range map[string]struct {
		check func() []string // the answer to CHECK after redlock run was stopped
		want  int
	}{
		"kept":    {granted, 7},
		"lost":    {cmdtest.Reply("ERR LOST lease=secret reason=quorum : no quorum"), exit.Lost},
		"silence": {cmdtest.Reply(), exit.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stopped atomic.Bool
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: granted, ipc.VerbUnlock: cmdtest.Reply("OK"), ipc.VerbCheck: func() []string {
				if !stopped.Load() {
					return granted()
				}
				return test.check()
			}})
			p, _ := cmdtest.RunPuppet(t, f.Socket)
			p.Stop()
			stopped.Store(true)
			end := boottime.Exact() + 2*ttl
			cmdtest.Await(t, "the end of the lease that was known", func() bool { return boottime.Exact() > end })
			p.Signal(syscall.SIGCONT)
			if test.want == 7 {
				p.ExpectLine("got continued")
				f.ExpectRequest(ipc.VerbLock)
				p.WriteLine("exit 7")
			}
			p.ExpectExit(test.want)
		})
	}
}
