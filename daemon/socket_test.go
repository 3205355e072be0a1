package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
)

// A daemon does not replace the socket of a living daemon. It replaces the socket of a dead one, and
// no file of another kind.
func TestSocketIsNotStolen(t *testing.T) {
	cfg := config.Socket{Path: filepath.Join(t.TempDir(), "s"), Mode: 0o600}
	first, err := listenAt(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("socket %s: another redlockd (pid %d) serves it: stop that one first, or start this one with -socket PATH to serve another socket", cfg.Path, os.Getpid())
	if _, err := listenAt(&cfg); err == nil || err.Error() != want {
		t.Errorf("a second daemon: %v, want %s", err, want)
	}
	if err := os.Truncate(cfg.Path+".lock", 0); err != nil { // such as by hand
		t.Fatal(err)
	}
	if _, err := listenAt(&cfg); err == nil || !strings.Contains(err.Error(), "another redlockd serves it: stop") {
		t.Errorf("a second daemon, if the pid is not known: %v", err)
	}
	first.listener.Close()
	first.claim.lock.Close() // as the end of its process does
	second, err := listenAt(&cfg)
	if err != nil {
		t.Fatalf("the socket of a dead daemon: %v, want it replaced", err)
	}
	if info, err := os.Lstat(cfg.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the socket: %v, %v; want 0600", info.Mode(), err)
	}
	second.listener.Close()
	second.release(true)
	if err := os.WriteFile(cfg.Path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenAt(&cfg); err == nil || !strings.Contains(err.Error(), "something other than a socket") {
		t.Errorf("a file at the path: %v, want it refused", err)
	}
}

// If somebody removes the socket and the lock file of a living daemon, a second daemon refuses to
// start: both would extend the same leases.
func TestSecondDaemonIsRefusedWithoutALockFile(t *testing.T) {
	path := filepath.Join(daemontest.ShortDir(t), "s")
	first := state.NewJournal(hclog.NewNullLogger())
	if first.Open(state.Options{Socket: path, KeyPrefix: "redlock:", Nodes: []state.Node{{Name: "a"}}}); !first.IsOpen() {
		t.Skip("the state file needs Linux")
	}
	cfg := config.Socket{Path: path, Mode: 0o600}
	if second, err := listenAt(&cfg); err == nil || !strings.Contains(err.Error(), "end it first") {
		t.Fatalf("a second daemon: %v, %v; want it refused", second, err)
	}
	first.Close() // as the end of its process does
	second, err := listenAt(&cfg)
	if err != nil {
		t.Fatalf("after the end of the first daemon: %v, want a socket", err)
	}
	second.release(true)
}

// listenAt creates the socket of a daemon without a service manager.
func listenAt(cfg *config.Socket) (*socket, error) {
	c, err := claimSocket(cfg, nil)
	if err != nil {
		return nil, err
	}
	return c.listen(cfg)
}

// If the file of the socket is removed, and even its lock file and its directory, the daemon binds it
// again, with the same rights. It logs one warning. Present connections go on, and a second daemon is
// still refused. The kernel's list has the real path, so systemd-tmpfiles knows that the socket is in use.
func TestRemovedSocketIsBoundAgain(t *testing.T) {
	var log daemontest.Log
	dir := filepath.Join(daemontest.ShortDir(t), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := &testDaemon{daemontest.NewDev(t, serve)}
	d.Cfg.Socket = config.Socket{Path: filepath.Join(dir, "s"), Mode: 0o620, Group: strconv.Itoa(os.Getegid())}
	d.Log = logging.New(&log, hclog.Info, logging.Text)
	d.Start()
	path := d.Cfg.Socket.Path
	early := d.dial()
	early.Say("LOCK a", granted5)
	const (
		boundAgain  = "[WARN]  the socket was removed, and is bound again: clients could not connect for up to a second: socket="
		cannotBind  = "[WARN]  the socket was removed, and cannot be bound again: no client can connect: socket="
		foreignFile = "[WARN]  another file is at the path of the socket: no client can connect: socket="
	)
	awaitLines := func(text string, n int) {
		t.Helper()
		log.AwaitThat(t, fmt.Sprintf("%d times %q", n, text), func(log string) bool { return strings.Count(log, text) == n })
	}
	check := func() {
		t.Helper()
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o620 {
			t.Errorf("the socket is %v, %v; want mode 0620", info.Mode(), err)
		}
		if runtime.GOOS == "linux" && !strings.Contains(readTestFile(t, "/proc/net/unix"), " "+path+"\n") {
			t.Errorf("/proc/net/unix does not have %s", path)
		}
		early.Say("CHECK a", `OK .*`)
		w := d.dial()
		w.Say("TRY a", `ERR HELD .*`)
		w.Conn.Close()
		if _, err := listenAt(&d.Cfg.Socket); err == nil || !strings.Contains(err.Error(), "another redlockd") {
			t.Errorf("a second daemon: %v, want it refused", err)
		}
	}
	check()

	os.Remove(path)
	awaitLines(boundAgain, 1)
	check()

	os.Remove(path)
	os.Remove(path + ".lock")
	awaitLines(boundAgain, 2)
	check()

	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	awaitLines(cannotBind, 1)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	awaitLines(boundAgain, 3)
	check()

	os.Remove(path)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitLines(foreignFile, 1)
	if readTestFile(t, path) != "precious" {
		t.Error("a file of another program was replaced")
	}
	os.Remove(path)
	awaitLines(boundAgain, 4)
	check()
	for text, n := range map[string]int{boundAgain: 4, cannotBind: 1, foreignFile: 1} {
		if got := strings.Count(log.String(), text); got != n {
			t.Errorf("%d times %q, want %d:\n%s", got, text, n, log.String())
		}
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there after the end of the daemon")
	}
}

// Nobody can connect before the socket has its rights, even if the umask of the process allows
// everything.
func TestSocketIsNeverOpenToOthers(t *testing.T) {
	umask := syscall.Umask(0)
	defer syscall.Umask(umask)
	path := filepath.Join(daemontest.ShortDir(t), "s")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if info, err := os.Lstat(path); err == nil && info.Mode().Perm()&^0o600 != 0 {
				t.Errorf("the socket was %v for a moment, want 0600", info.Mode())
				return
			}
		}
	}()
	for range 200 {
		listener, err := bindSocket(&config.Socket{Path: path, Mode: 0o600})
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	}
	close(stop)
	<-ended
	if now := syscall.Umask(0); now != 0 {
		t.Errorf("the umask is %o afterwards, want 0", now)
	}
}

// If somebody removes the socket of the service manager, the daemon can only say so, once.
func TestRemovedSocketOfTheManager(t *testing.T) {
	path := filepath.Join(daemontest.ShortDir(t), "s")
	listener, err := bindSocket(&config.Socket{Path: path, Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := newSocket(&claim{path: path}, listener, false)
	if news := s.check(&config.Socket{Path: path}); news != (socketNews{}) {
		t.Errorf("while it is there: %+v", news)
	}
	os.Remove(path)
	want := socketNews{event: unitSocketRemoved}
	if news := s.check(&config.Socket{Path: path}); news != want {
		t.Errorf("got %+v, want %+v", news, want)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the daemon has bound a socket beside that of the service manager")
	}
}

// A daemon does not follow a link at the path of its lock file.
func TestPlantedLockFile(t *testing.T) {
	cfg := config.Socket{Path: filepath.Join(t.TempDir(), "s"), Mode: 0o600}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, cfg.Path+".lock"); err != nil {
		t.Fatal(err)
	}
	if s, err := listenAt(&cfg); err == nil {
		s.release(true)
		t.Error("the daemon uses a lock file behind a link")
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("a file was created through the link")
	}
}
