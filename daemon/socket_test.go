package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
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
	if err := os.Truncate(cfg.Path+".lock", 0); err != nil { // an earlier version left it empty
		t.Fatal(err)
	}
	if _, err := listenAt(&cfg); err == nil || !strings.Contains(err.Error(), "another redlockd serves it: stop") {
		t.Errorf("a second daemon, if the pid is not known: %v", err)
	}
	first.Close()
	first.lock.Close() // as the end of its process does
	second, err := listenAt(&cfg)
	if err != nil {
		t.Fatalf("the socket of a dead daemon: %v, want it replaced", err)
	}
	if info, err := os.Lstat(cfg.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the socket: %v, %v; want 0600", info.Mode(), err)
	}
	second.Close()
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
