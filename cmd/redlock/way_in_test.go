package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// rights is the socket of a user, with a mode.
type rights struct {
	fs.FileInfo
	mode fs.FileMode
	gid  uint32
}

func (r rights) Mode() fs.FileMode { return fs.ModeSocket | r.mode }
func (r rights) Sys() any          { return &syscall.Stat_t{Uid: 4001, Gid: r.gid} }

// To join a group is advised where that helps, and gives no more than that.
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
		if got := wayIn(test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("for %v of group %d it says %q, want %q", test.info.mode, test.info.gid, got, test.want)
		}
	}
	if got := wayIn(rights{mode: 0o600}); !strings.HasSuffix(got, "run this as the user who runs that, 4001") {
		t.Errorf("of -dev it says %q", got)
	}
}

// So it is with a folder that keeps him from the socket.
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
		if got := wayInto(test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("for %v of group %d it says %q, want %q", test.info.mode, test.info.gid, got, test.want)
		}
	}
	if folder, info := closedFolder("s"); folder != "." || info == nil {
		t.Errorf("where the path is short it finds %q", folder)
	}
	if folder, info := closedFolder("/nowhere/else/s"); folder != "/" || info == nil {
		t.Errorf("where there is nothing it finds %q", folder)
	}
}

// Who may not open the socket hears the same from all commands.
func TestShutOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := fmt.Errorf("dial %s: %w: this user needs the group of the socket: %w", path, client.ErrDenied, fs.ErrPermission)
	f := daemonFailure(shutOut(path, refused))
	if want := "this user may not open " + path + ", which is -rw-------, user "; f.code != exitDenied || !strings.HasPrefix(f.Error(), want) || !strings.Contains(f.Error(), ": set socket.group") {
		t.Errorf("exit code %d, %q; want %d, %q, and to set socket.group", f.code, f, exitDenied, want)
	}
	if got := unanswered(f); got.fix != "what is said of the socket" {
		t.Errorf("doctor says %+v, want no second advice", got)
	}
	if got := shutOut(path, client.ErrUnavailable); got != client.ErrUnavailable {
		t.Errorf("of another error it makes %q", got)
	}
}

// All of it once with a user who may not.
func TestShutOutOfSocket(t *testing.T) {
	t.Parallel()
	f := startFake(t, nil)
	if err := os.Chmod(f.socket, 0); err != nil {
		t.Fatal(err)
	}
	p := asStranger(t, f.socket, f.socket, "status")
	p.ends(exitDenied)
	text := "this user may not open " + f.socket + ", which is ----------, user "
	if stderr := p.said(); !strings.HasPrefix(stderr, "redlock: "+text) {
		t.Errorf("stderr is %q, want %q", stderr, text)
	}
	p = asStranger(t, f.socket, f.socket, "doctor")
	stdout := p.rest()
	p.ends(int(bad))
	if !strings.HasPrefix(stdout, "bad      socket  "+text) || !strings.Contains(stdout, "redlockd cannot be asked, as this user may not open its socket; fix: what is said of the socket\n") {
		t.Errorf("doctor says %q, want %q, and that of the daemon", stdout, text)
	}
}

// /run/redlockd is for the group alone, too: who is not in it cannot even look at the socket.
func TestShutOutOfFolder(t *testing.T) {
	t.Parallel()
	f := startFake(t, nil)
	folder := filepath.Join(filepath.Dir(f.socket), "closed")
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
	p := asStranger(t, f.socket, socket, "status")
	p.ends(exitDenied)
	if stderr := p.said(); !strings.HasPrefix(stderr, "redlock: "+text) || !strings.Contains(stderr, ": "+join) {
		t.Errorf("stderr is %q, want %q and %q", stderr, text, join)
	}
	p = asStranger(t, f.socket, socket, "doctor")
	stdout := p.rest()
	p.ends(int(bad))
	if !strings.Contains(stdout, text) || !strings.Contains(stdout, "; fix: "+join) {
		t.Errorf("doctor says %q, want %q and %q", stdout, text, join)
	}
}

// asStranger starts redlock as a user who is no root. He may enter the folder of the socket
// beside.
func asStranger(t *testing.T, beside, socket string, args ...string) *process {
	t.Helper()
	cmd := command(t, testBinary, args...)
	if os.Getuid() == 0 { // who may open everything
		cmd = command(t, readable(t, beside, testBinary), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return startCommand(t, cmd, roleRedlock, socket)
}

// readable is a copy of a program that everybody may run, in the folder of the socket,
// which everybody may enter.
func readable(t *testing.T, socket, program string) string {
	t.Helper()
	folder := filepath.Dir(socket)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if output, err := command(t, "cp", program, filepath.Join(folder, "redlock")).CombinedOutput(); err != nil { // not open here, while others are started
		t.Fatalf("cp: %v: %s", err, output)
	}
	return filepath.Join(folder, "redlock")
}
