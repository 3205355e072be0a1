package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// If the config has no password for a node that requires one, or a wrong one, then the log, STATUS and
// the error of a TRY say where the password belongs.
func TestNodeWantsAPassword(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(wrong, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"none": "", "wrong": wrong, "gone": filepath.Join(t.TempDir(), "gone")} {
		t.Run(name, func(t *testing.T) { testPassword(t, file) })
	}
}

func testPassword(t *testing.T, file string) {
	var log daemontest.Log
	first := startDaemon(t, 3, nil)
	nodes := slices.Clone(first.Cfg.Quorum.Nodes)
	for i := 1; i < 3; i++ {
		if _, err := first.Nodes.Servers[i].Do("CONFIG", "SET", "requirepass", "secret"); err != nil {
			t.Fatal(err)
		}
		nodes[i].PasswordFile = file
	}
	first.Cfg.Quorum.Nodes = nodes
	d := first.another(logging.New(&log, hclog.Info, logging.Text))
	w := d.dial()
	const says = `(password_file of this node in redlockd.hcl|its password_file cannot be used: .*/gone: no such file)`
	w.Until("STATUS", `node=c .* : .*`+says)
	if got := w.Say("TRY a", `ERR NOQUORUM lock=a .* : (.*`+says+`.*)`)[0]; strings.Contains(got, "HELLO") {
		t.Errorf("TRY was answered with %s, want no Redis command", got)
	}
	const want = "[WARN]  node is down: node=c address="
	if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "password_file") || strings.Contains(got, "HELLO") {
		t.Errorf("want %q with password_file, and no Redis command:\n%s", want, got)
	}
}

// The database of a node in the config is the one that its connections select.
func TestNodeDatabase(t *testing.T) {
	node := redlock.RedisNode(nodeOptions(&config.Node{Name: "a", Address: "10.0.0.1:6379", Database: 3}))
	if node.Database != 3 || node.Address != "10.0.0.1:6379/3" {
		t.Errorf("the node has the database %d, and is shown as %s", node.Database, node.Address)
	}
}
