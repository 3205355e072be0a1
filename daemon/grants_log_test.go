package daemon

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

// With log { grants = true } the log has a line for each grant, and for each release with its reason.
// A reload can switch that off.
func TestGrantsAreLogged(t *testing.T) {
	first := startDaemon(t, 1, func(cfg *config.Config) { cfg.Log.Grants = true })
	var log daemontest.Log
	d := first.another(logging.New(&log, hclog.Info, logging.Text))
	w, gone := d.dial(), d.dial()
	w.Say("LOCK a,b", granted("a,b"))
	gone.Say("LOCK c mode=shared", granted("c"))
	w.Say("UNLOCK a,b", `OK lock=a,b`)
	w.Say("UNLOCK a,b", `ERR NOTHELD .*`) // releases nothing
	gone.Conn.Close()
	for _, want := range []string{
		`\[INFO\]  lock granted: lock="?a,b"? fence=\d+ user=\S+ pid=\d+ host=\S+ mode=exclusive waited_ms=\d+\n`,
		`\[INFO\]  lock released: lock="?a,b"? fence=\d+ user=\S+ pid=\d+ host=\S+ mode=exclusive held_ms=\d+ reason=unlock\n`,
		`\[INFO\]  lock granted: lock=c fence=\d+ user=\S+ pid=\d+ host=\S+ mode=shared waited_ms=\d+\n`,
		`\[INFO\]  lock released: lock=c fence=\d+ user=\S+ pid=\d+ host=\S+ mode=shared held_ms=\d+ reason="connection ended"\n`,
	} {
		line := regexp.MustCompile(want)
		log.AwaitThat(t, want, func(log string) bool { return len(line.FindAllString(log, -1)) == 1 })
	}
	if n := strings.Count(log.String(), "lock released: "); n != 2 {
		t.Errorf("%d releases are logged, want 2:\n%s", n, log.String())
	}

	off := *d.Cfg
	off.Log.Grants = false
	d.Reload <- &off
	log.Await(t, "config reloaded")
	w.Say("LOCK d", granted("d"))
	w.Say("UNLOCK d", `OK lock=d`)
	if strings.Contains(log.String(), "lock=d") {
		t.Errorf("grants are logged after they were switched off:\n%s", log.String())
	}
}
