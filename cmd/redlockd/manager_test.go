package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

// listenAsManager acts as the service manager. awaitMessage waits for the next message.
func listenAsManager(t *testing.T) (awaitMessage func(want string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(want string) {
		t.Helper()
		manager.SetReadDeadline(time.Now().Add(2 * time.Minute))
		buffer := make([]byte, 4096)
		n, err := manager.Read(buffer)
		if got := string(buffer[:n]); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("received %q, %v; want %s", got, err, want)
		}
	}
}

// redlockd tells the service manager when a reload starts. If the config was refused, it also
// says when the reload ends. If the config was taken, the daemon says that.
func TestManagerIsToldOfReload(t *testing.T) {
	awaitMessage := listenAsManager(t)
	name := writeConfig(t, goodConfig)
	var f *fixture
	f = newFixture(t, func(_ context.Context, _ *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		replaceConfig(t, name, faultyConfig)
		f.signals <- syscall.SIGHUP
		awaitMessage("RELOADING=1\nMONOTONIC_USEC=")
		awaitMessage("READY=1")
		replaceConfig(t, name, goodConfig)
		f.signals <- syscall.SIGHUP
		awaitMessage("RELOADING=1\nMONOTONIC_USEC=")
		<-o.Reload
		return o.Manager.Ready()
	})
	f.check(t, f.run([]string{"-config", name}), exitOK, "", "config not reloaded")
	awaitMessage("READY=1")
}

// If redlockd cannot parse the manager's environment variables, it does not start.
func TestFaultyManager(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	f := newFixture(t, nil)
	f.check(t, f.run([]string{"-dev"}), exitFailed, "", "WATCHDOG_USEC")
}

// If redlockd cannot reach the service manager, it logs that and still reloads.
func TestManagerIsGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	var f *fixture
	f = newFixture(t, func(_ context.Context, _ *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		f.signals <- syscall.SIGHUP
		<-o.Reload
		return nil
	})
	f.check(t, f.run([]string{"-dev"}), exitOK, "", "was not told of the reload")
}
