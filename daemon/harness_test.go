package daemon

import (
	"context"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

// testDaemon is a daemon that Run serves.
type testDaemon struct{ *daemontest.Daemon }

// wire is a client of a testDaemon.
type wire = daemontest.Wire

const granted5 = daemontest.AnyGrant

var granted = daemontest.GrantOf

// startDaemon starts a daemon over n redis-servers. change may change the config; it may be nil.
func startDaemon(t *testing.T, n int, change func(*config.Config)) *testDaemon {
	t.Helper()
	d := &testDaemon{daemontest.New(t, n, serve, change)}
	d.Start()
	return d
}

func serve(ctx context.Context, d *daemontest.Daemon, ready func()) error {
	return Run(ctx, d.Cfg, d.Log, RunOptions{Dev: d.Nodes == nil, Reload: d.Reload, Ready: ready})
}

func (d *testDaemon) dial() *wire {
	d.T.Helper()
	return d.Dial()
}

// another starts a second daemon over the same nodes, as on another host. log may be nil.
func (d *testDaemon) another(log hclog.Logger) *testDaemon {
	d.T.Helper()
	return &testDaemon{d.Another(log)}
}

func readTestFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
