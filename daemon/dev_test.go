package daemon

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// startDev starts a daemon with embedded nodes.
func startDev(t *testing.T) *testDaemon {
	t.Helper()
	d := &testDaemon{daemontest.NewDev(t, serve)}
	d.Start()
	return d
}

// A daemon with -dev has five embedded nodes, and their keys expire.
func TestDev(t *testing.T) {
	d := startDev(t)
	a, b := d.dial(), d.dial()
	a.Until("STATUS", `spare=2\b`) // on a busy machine the daemon may start with three nodes
	a.Say("LOCK a", granted5)
	b.Say("TRY a", `ERR HELD lock=a .*`)
	b.Until("WHO a", `^- lock=a .* held=5 nodes=5\nOK n=1\n$`) // a quorum is enough for the grant
	a.Say("UNLOCK a", `OK lock=a`)
	start := redlock.BootTime()
	a.Say("LOCK a hold=ttl ttl=300ms", granted5)
	a.Want(`LOST lock=a .* reason=expired .*`)
	b.Say("LOCK a", granted5)
	if took := redlock.BootTime() - start; took < 250*time.Millisecond {
		t.Errorf("the lock is free after %v, want not before the lease expires", took)
	}
	b.Conn.Close()
	a.Until("WHO a", `^OK n=0\n$`)
}

// Leases on embedded nodes end with the process.
func TestDevLeasesEndWithTheProcess(t *testing.T) {
	d := startDev(t)
	w := d.dial()
	w.Say("LOCK a", granted5)
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	w.Want(`BYE resume=0 : .* no lease of it can be resumed: .*`)
}

// A stopping daemon closes its connections to the nodes. The log does not say that they went down.
func TestShutdownLogsNoNodeAsDown(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Dev()
	cfg.Socket.Path = t.TempDir() + "/s"
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, cfg, logging.New(&log, cfg.Log.Level, cfg.Log.Format), RunOptions{Dev: true, Ready: cancel})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log.Bytes(), []byte("is down")) {
		t.Errorf("the log says that nodes went down:\n%s", log.String())
	}
}
