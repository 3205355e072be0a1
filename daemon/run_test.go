package daemon

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Who cannot have the socket asks the nodes nothing, and logs nothing beside the error.
func TestNodesAreNotAskedWithoutASocket(t *testing.T) {
	d := startDaemon(t, 1, nil)
	fresh := redlocktest.StartRedis(t, 1).Servers[0]
	for path, want := range map[string]string{
		d.cfg.Socket.Path:                   "another redlockd serves it",
		filepath.Join(t.TempDir(), "no/s"):  "does its directory exist",
		filepath.Join(shortDir(t), "group"): "groupadd --system no-such-group",
	} {
		var log logged
		cfg := *d.cfg
		cfg.Quorum.Nodes = []NodeConfig{{Name: "fresh", Address: fresh.Addr()}}
		cfg.Socket.Path = path
		if filepath.Base(path) == "group" {
			cfg.Socket.Group = "no-such-group"
		}
		err := Run(context.Background(), &cfg, NewLogger(LogConfig{Level: hclog.Info}, &log), RunOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", path, err, want)
		}
		if log.String() != "" {
			t.Errorf("%s: logged:\n%s", path, log.String())
		}
	}
	if keys, err := fresh.Do("DBSIZE"); err != nil || keys.Int != 0 {
		t.Errorf("the node has %d keys, %v; want none", keys.Int, err)
	}
	d.dial().say("PING", `OK`)
}

// A start that fails later is no fault of the nodes, and the next one can have the socket.
func TestFailedStartIsNoFaultOfTheNodes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var log logged
	d := startDaemon(t, 3, nil)
	cfg := *d.cfg
	cfg.Socket.Path += "2"
	cfg.Metrics = &MetricsConfig{Address: listener.Addr().String()}
	for range 2 {
		err = Run(context.Background(), &cfg, NewLogger(LogConfig{Level: hclog.Info}, &log), RunOptions{})
		if err == nil || !strings.Contains(err.Error(), cfg.Metrics.Address) {
			t.Errorf("got %v, want an error that names %s", err, cfg.Metrics.Address)
		}
	}
	if strings.Contains(log.String(), "node is down") {
		t.Errorf("logged:\n%s", log.String())
	}
}
