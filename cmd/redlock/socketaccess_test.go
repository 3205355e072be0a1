package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/doctor"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// A real user without access to the socket gets this error.
func TestShutOutOfSocket(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, nil)
	if err := os.Chmod(f.Socket, 0); err != nil {
		t.Fatal(err)
	}
	p := asStranger(t, f.Socket, f.Socket, "status")
	p.ExpectExit(exit.Denied)
	text := "this user may not open " + f.Socket + ", which is ----------, user "
	if stderr := p.Stderr(); !strings.HasPrefix(stderr, "redlock: "+text) {
		t.Errorf("stderr is %q, want %q", stderr, text)
	}
	p = asStranger(t, f.Socket, f.Socket, "doctor")
	stdout := p.ReadAll()
	p.ExpectExit(int(doctor.Bad))
	if !strings.HasPrefix(stdout, "bad      socket  "+text) || !strings.Contains(stdout, "redlockd cannot be asked, because this user may not open its socket; fix: see the finding about the socket\n") {
		t.Errorf("doctor says %q, want %q, and that of the daemon", stdout, text)
	}
}

// /run/redlockd is for the group alone too: a user outside the group cannot even stat the socket.
func TestShutOutOfFolder(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, nil)
	folder := filepath.Join(filepath.Dir(f.Socket), "closed")
	if err := os.Mkdir(folder, 0o050); err != nil {
		t.Fatal(err)
	}
	group := strconv.Itoa(os.Getgid())
	if os.Getuid() == 0 {
		group = "4002"
		if err := os.Chown(folder, 0, 4002); err != nil {
			t.Fatal(err)
		}
	}
	if known, err := user.LookupGroupId(group); err == nil {
		group = known.Name
	}
	socket := filepath.Join(folder, "s")
	text, join := "this user may not enter "+folder+", which is ----r-x---, user ", "join its group (usermod -aG "+group+" USER), and log in again"
	p := asStranger(t, f.Socket, socket, "status")
	p.ExpectExit(exit.Denied)
	if stderr := p.Stderr(); !strings.HasPrefix(stderr, "redlock: "+text) || !strings.Contains(stderr, ": "+join) {
		t.Errorf("stderr is %q, want %q and %q", stderr, text, join)
	}
	p = asStranger(t, f.Socket, socket, "doctor")
	stdout := p.ReadAll()
	p.ExpectExit(int(doctor.Bad))
	if !strings.Contains(stdout, text) || !strings.Contains(stdout, "; fix: "+join) {
		t.Errorf("doctor says %q, want %q and %q", stdout, text, join)
	}
}

// asStranger starts redlock as a user other than root. That user may enter the directory of the
// socket beside.
func asStranger(t *testing.T, beside, socket string, args ...string) *cmdtest.Process {
	t.Helper()
	cmd := cmdtest.Command(t, cmdtest.TestBinary, args...)
	if os.Getuid() == 0 { // because root may open everything
		cmd = cmdtest.Command(t, readable(t, beside, cmdtest.TestBinary), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, socket)
}

// readable copies a program to the directory of the socket and returns the copy. Every user may
// enter the directory and run the copy.
func readable(t *testing.T, socket, program string) string {
	t.Helper()
	folder := filepath.Dir(socket)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if output, err := cmdtest.Command(t, "cp", program, filepath.Join(folder, "redlock")).CombinedOutput(); err != nil { // cp writes the copy, so that this process never has it open for writing while others start
		t.Fatalf("cp: %v: %s", err, output)
	}
	return filepath.Join(folder, "redlock")
}
