package session

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

// The log says that ADMIT ended a quarantine early, but not if ADMIT failed.
func TestAdmitIsLogged(t *testing.T) {
	t.Parallel() // it mostly waits
	var log daemontest.Log
	d := startDaemon(t, 3, longNodeTimeout).anotherWithLog(logging.New(&log, hclog.Info, logging.Text))
	w, c := d.dial(), d.Nodes.Servers[2]
	logs := func(words string, want bool) {
		t.Helper()
		if strings.Contains(log.String(), words) != want {
			t.Errorf("the log contains %q: %v, want %v:\n%s", words, !want, want, log.String())
		}
	}
	const done = "quarantine ended early by ADMIT"
	w.Say("ADMIT c", `ERR OPTION : node c is ready, .*`)
	logs("[INFO]  ADMIT failed: node=c user=", true)
	c.Kill()
	w.Until("STATUS", `node=c .*state=down`)
	w.Say("ADMIT c", `ERR OPTION : node c is down, .*`)
	logs(done, false)
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	w.Until("STATUS", `node=c .*state=quarantined`)
	w.Say("ADMIT all", `- node=c state=ready`)
	w.Want(`OK n=1`)
	logs("[WARN]  "+done+": node=c user=", true)
}
