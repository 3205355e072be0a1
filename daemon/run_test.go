package daemon

import (
	"context"
	"os"
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
	var log logged
	d := startDaemon(t, 3, nil)
	cfg := *d.cfg
	dir := filepath.Join(filepath.Dir(cfg.Socket.Path), strings.Repeat("d", 100-len(filepath.Dir(cfg.Socket.Path))))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.Socket.Path = filepath.Join(dir, "s") // a socket can have it, and the name that is for the moment before is too long
	for range 2 {
		err := Run(context.Background(), &cfg, NewLogger(LogConfig{Level: hclog.Info}, &log), RunOptions{})
		if err == nil || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("got %v, want an error of the socket", err)
		}
	}
	if strings.Contains(log.String(), "node is down") {
		t.Errorf("logged:\n%s", log.String())
	}
}
