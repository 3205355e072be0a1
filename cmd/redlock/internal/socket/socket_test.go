package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// An error says that redlockd does not answer only if no better reason is known.
func TestSilence(t *testing.T) {
	for _, why := range []error{client.ErrHeld, client.ErrNoQuorum, client.ErrUnavailable, client.ErrShutdown} {
		if err := errors.Join(why, context.DeadlineExceeded); ExplainTimeout(err) != err {
			t.Errorf("%v is taken for %v", err, ExplainTimeout(err))
		}
	}
	if err := ExplainTimeout(context.DeadlineExceeded); !strings.Contains(err.Error(), "does not answer") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error of a timeout is %v", err)
	}
	if err := ExplainTimeout(context.Canceled); err != context.Canceled {
		t.Errorf("the error after a signal is %v", err)
	}
}

// If the mode of the socket lets the user in, something else denies it, and its mode is not to be changed.
func TestDeniedBySecurityModule(t *testing.T) {
	path := cmdtest.NewSocket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for mode, want := range map[fs.FileMode]string{0o666: "SELinux, AppArmor or another rule denies it", 0o600: "SELinux, AppArmor or another rule denies it", 0o060: "join its group", 0: "socket.mode"} {
		if err := errors.Join(os.Chmod(path, mode), os.Chown(path, -1, 4002)); err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
		if err := explainDenied(path, fs.ErrPermission); !strings.Contains(err.Error(), want) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a socket of this user with mode %v: %v; want %q in it", mode, err, want)
		}
	}
}

// The command under a lock may look for the socket from another directory.
func TestSocketPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for given, want := range map[string]string{"": client.DefaultSocket, "/s": "/s", "s": filepath.Join(dir, "s"), "./a/../s": filepath.Join(dir, "s")} {
		t.Setenv(cmdtest.SocketVariable, given)
		if got := Path(); got != want {
			t.Errorf("REDLOCK_SOCKET=%s: %q, want %q", given, got, want)
		}
	}
}

// If the directory's path is too long for a socket, the daemon listens on ./redlockd.sock, and
// redlock finds it there.
func TestSocketPathInDeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", ipc.MaxSocketPath))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv(cmdtest.SocketVariable, "./s")
	l, err := net.Listen("unix", Path())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// rights is the FileInfo of a user's socket with the given mode.
type rights struct {
	fs.FileInfo
	mode fs.FileMode
	gid  uint32
}

func (r rights) Mode() fs.FileMode { return fs.ModeSocket | r.mode }
func (r rights) Sys() any          { return &syscall.Stat_t{Uid: 4001, Gid: r.gid} }

// The text advises joining a group only if that gives access to the socket and no other rights.
func TestWayIn(t *testing.T) {
	const join, set = "join its group (usermod -aG 4002 USER)", "set socket.group and socket.mode in the config, and restart redlockd"
	for _, test := range []struct {
		info rights
		want string
	}{
		{rights{mode: 0o660, gid: 4002}, join},
		{rights{mode: 0o600, gid: 4002}, set},
		{rights{mode: 0o640, gid: 4002}, set},
		{rights{mode: 0o660, gid: 0}, set},
		{rights{mode: 0o600, gid: 0}, set},
	} {
		if got := HowToOpen(test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("for %v of group %d got %q, want %q", test.info.mode, test.info.gid, got, test.want)
		}
	}
	if got := HowToOpen(rights{mode: 0o600}); !strings.HasSuffix(got, "run this as its user, 4001") {
		t.Errorf("with -dev got %q", got)
	}
}

// The same for a directory that the user may not enter.
func TestWayInto(t *testing.T) {
	for _, test := range []struct {
		info rights
		want string
	}{
		{rights{mode: 0o750, gid: 4002}, "join its group (usermod -aG 4002 USER)"},
		{rights{mode: 0o710, gid: 4002}, "join its group (usermod -aG 4002 USER)"},
		{rights{mode: 0o740, gid: 4002}, "let this user enter it"},
		{rights{mode: 0o700, gid: 4002}, "let this user enter it"},
		{rights{mode: 0o750, gid: 0}, "let this user enter it"},
	} {
		if got := HowToEnter(test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("for %v of group %d got %q, want %q", test.info.mode, test.info.gid, got, test.want)
		}
	}
	if folder, info := ClosedFolder("s"); folder != "." || info == nil {
		t.Errorf("where the path is short it finds %q", folder)
	}
	if folder, info := ClosedFolder("/nowhere/else/s"); folder != "/" || info == nil {
		t.Errorf("where there is nothing it finds %q", folder)
	}
}

// If a user may not open the socket, all commands print the same error.
func TestShutOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	refused := fmt.Errorf("dial %s: %w: this user may not open it: %w", path, client.ErrDenied, fs.ErrPermission)
	f := exit.FromClient(explainDenied(path, refused))
	if want := "this user may not open " + path + ", which is -r--------, user "; f.Code != exit.Denied || !strings.HasPrefix(f.Error(), want) || !strings.Contains(f.Error(), ": set socket.group") {
		t.Errorf("exit code %d, %q; want %d, %q, and to set socket.group", f.Code, f, exit.Denied, want)
	}
	if got := explainDenied(path, client.ErrUnavailable); got != client.ErrUnavailable {
		t.Errorf("of another error it makes %q", got)
	}
}

// If no daemon listens, each text says how to start one, and what REDLOCK_SOCKET is for.
func TestAbsentDaemon(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, wants := range map[string][]string{
		"":           {"no redlockd listens on " + client.DefaultSocket + ": start redlockd (systemctl start redlockd; to try it out: redlockd -dev)", "set REDLOCK_SOCKET to the socket"},
		"/elsewhere": {"no redlockd listens on /elsewhere: start redlockd there (to try it out: redlockd -dev)", "set REDLOCK_SOCKET, which names this path"},
	} {
		t.Setenv(variable, name)
		for _, cause := range []error{syscall.ENOENT, syscall.ECONNREFUSED} {
			got := explainAbsent(fmt.Errorf("dial: %w: %w", client.ErrUnavailable, cause), 0)
			for _, want := range wants {
				if !strings.Contains(got.Error(), want) || !errors.Is(got, client.ErrUnavailable) || !errors.Is(got, cause) {
					t.Errorf("REDLOCK_SOCKET=%q: %v; want %q in it", name, got, want)
				}
			}
		}
	}
	for _, other := range []error{client.ErrDenied, fmt.Errorf("it ended: %w", client.ErrUnavailable)} {
		if got := explainAbsent(other, 0); got != other {
			t.Errorf("of another error it makes %v", got)
		}
	}
}

// If --socket names the socket, the error does not blame REDLOCK_SOCKET.
func TestAbsentDaemonOfFlag(t *testing.T) {
	t.Setenv(variable, "") // restores it
	defer func() { byFlag = false }()
	if err := Flag().Set("/elsewhere"); err != nil {
		t.Fatal(err)
	}
	got := explainAbsent(fmt.Errorf("dial: %w: %w", client.ErrUnavailable, syscall.ENOENT), 0).Error()
	if want := "no redlockd listens on /elsewhere: start redlockd there"; !strings.HasPrefix(got, want) || !strings.Contains(got, "--socket") || strings.Contains(got, variable) {
		t.Errorf("got %q, want %q and --socket in it", got, want)
	}
}

// If the default socket does not exist, the error names the socket of redlockd -dev in this
// directory, if there is one.
func TestDevSocketIsSuggested(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(variable, "")
	const want = "there is ./redlockd.sock, as of redlockd -dev: export REDLOCK_SOCKET=$PWD/redlockd.sock"
	if got := HowToReach(); got == want {
		t.Errorf("without a socket got %q", got)
	}
	l, err := net.Listen("unix", devSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := HowToReach(); got != want {
		t.Errorf("with a socket got %q", got)
	}
	t.Setenv(variable, "/elsewhere")
	if got := HowToReach(); got == want {
		t.Errorf("with REDLOCK_SOCKET set got %q", got)
	}
}
