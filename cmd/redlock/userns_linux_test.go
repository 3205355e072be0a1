package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// In a user namespace, as in a rootless container, the owner of the socket may have no number. The error
// does not advise to become nobody, or to join nogroup.
func TestShutOutInUserNamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give the socket to another user")
	}
	f := cmdtest.StartFake(t, nil)
	program := readable(t, f.Socket, cmdtest.TestBinary)
	if err := os.Chown(f.Socket, 4002, 4002); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Socket, 0o660); err != nil {
		t.Fatal(err)
	}
	cmd := cmdtest.Command(t, program, "status")
	cmd.Dir = filepath.Dir(f.Socket)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 4003, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{}}
	p := cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, f.Socket)
	p.ExpectExit(exit.Denied)
	if stderr := p.Stderr(); !strings.Contains(stderr, "no number in this user namespace") || strings.Contains(stderr, "usermod") {
		t.Errorf("stderr is %q", stderr)
	}
}
