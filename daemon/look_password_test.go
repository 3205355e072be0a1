package daemon

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A node that wants a password where the config has none says where that belongs, in the log
// and in STATUS.
func TestNodeWantsAPassword(t *testing.T) {
	var log logged
	first := startDaemon(t, 3, nil)
	if _, err := first.nodes.Servers[2].Do("CONFIG", "SET", "requirepass", "secret"); err != nil {
		t.Fatal(err)
	}
	d := first.anotherThatLogs(NewLogger(LogConfig{Level: hclog.Info}, &log))
	d.dial().until("STATUS", `node=c .* : .*password_file of this node in redlockd.hcl`)
	const want = "[WARN]  node is down: node=c address="
	if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "password_file") || strings.Contains(got, "HELLO") {
		t.Errorf("want %q with password_file, and no command of Redis:\n%s", want, got)
	}
}
