package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A node that wants a password where the config has none, or another one, says where that
// belongs, in the log and in STATUS.
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
	var log logged
	first := startDaemon(t, 3, nil)
	if _, err := first.nodes.Servers[2].Do("CONFIG", "SET", "requirepass", "secret"); err != nil {
		t.Fatal(err)
	}
	nodes := slices.Clone(first.cfg.Quorum.Nodes)
	nodes[2].PasswordFile = file
	first.cfg.Quorum.Nodes = nodes
	d := first.anotherThatLogs(NewLogger(LogConfig{Level: hclog.Info}, &log))
	d.dial().until("STATUS", `node=c .* : .*(password_file of this node in redlockd.hcl|its password_file cannot be used: .*/gone: no such file)`)
	const want = "[WARN]  node is down: node=c address="
	if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "password_file") || strings.Contains(got, "HELLO") {
		t.Errorf("want %q with password_file, and no command of Redis:\n%s", want, got)
	}
}
