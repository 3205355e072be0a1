package main

import (
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.StartCommand(t, cmdtest.Detach(cmdtest.Command(t, cmdtest.TestBinary, cmdtest.RunArgs(nil, cmdtest.Puppet()...)...)), cmdtest.RoleRedlock, f.Socket)
	p.AwaitPuppet()
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
	} {
		p.Signal(sig)
		p.ExpectLine("got " + sig.String())
	}
	p.WriteLine("exit 11")
	p.ExpectExit(11)
}

// If several signals arrive while redlock run is stopped, the command gets all of them.
func TestSignalsThatComeTogether(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.StartCommand(t, cmdtest.Detach(cmdtest.Command(t, cmdtest.TestBinary, cmdtest.RunArgs(nil, cmdtest.Puppet()...)...)), cmdtest.RoleRedlock, f.Socket)
	p.AwaitPuppet()
	p.Stop()
	want := map[string]bool{"got " + syscall.SIGCONT.String(): true}
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
	} {
		p.Signal(sig)
		want["got "+sig.String()] = true
	}
	for p.Signal(syscall.SIGCONT); len(want) > 0; delete(want, p.ReadLine()) {
	}
	p.WriteLine("exit 11")
	p.ExpectExit(11)
}

func TestSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, nil)
			p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "echo", "must not run")...)
			f.ExpectRequest(ipc.VerbLock)
			p.Signal(sig)
			p.ExpectExit(128 + int(sig))
			if verbs := f.AwaitDisconnect(); !slices.Equal(verbs, []ipc.Verb{ipc.VerbCancel}) {
				t.Errorf("at its end the daemon read %v, want CANCEL", verbs)
			}
			if out := p.ReadAll(); out != "" || p.Stderr() != "" {
				t.Errorf("stdout %q, stderr %q, want nothing", out, p.Stderr())
			}
		})
	}
}

// The daemon accepts connections and does not answer.
func TestSignalWhileConnecting(t *testing.T) {
	t.Parallel()
	socket := cmdtest.NewSocket(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, "true")...)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Signal(syscall.SIGINT)
	p.ExpectExit(128 + int(syscall.SIGINT))
}

func TestWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	holder, _ := cmdtest.RunPuppet(t, socket)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, "true")...)
	c := cmdtest.Dial(t, socket)
	cmdtest.WaitFor(t, c, "a waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 2 })
	p.Signal(syscall.SIGINT)
	p.ExpectExit(128 + int(syscall.SIGINT))
	cmdtest.WaitFor(t, c, "no waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 1 })
	holder.WriteLine("exit 0")
	holder.ExpectExit(0)
}

// If redlock run starts with a signal ignored, the command ignores it too.
func TestNohup(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	args := append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", cmdtest.TestBinary},
		cmdtest.RunArgs(nil, "sh", "-c", "kill -HUP $$ $PPID; echo alive")...)
	p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", args...), cmdtest.RoleRedlock, f.Socket)
	p.ExpectLine("alive")
	p.ExpectExit(0)
}

func TestKilledTogether(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p, _ := cmdtest.RunPuppet(t, socket)
	p.Signal(syscall.SIGKILL)
	if out := p.ReadAll(); out != "" { // the puppet closes stdout at its end
		t.Errorf("the puppet was not killed, but printed %q", out)
	}
	p.ExpectExit(-int(syscall.SIGKILL))
	code, _, stderr := cmdtest.Run(t, socket, cmdtest.RunArgs([]string{"-w", "10"}, "true")...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
}
