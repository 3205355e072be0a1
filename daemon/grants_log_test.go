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

// With log { grants = true } the log has a line for each grant, for each release with its reason, and
// for each request that another client or the nodes refused.
// A reload can switch that off.
func TestGrantsAreLogged(t *testing.T) {
	first := startDaemon(t, 1, func(cfg *config.Config) { cfg.Log.Grants = true })
	var log daemontest.Log
	d := first.another(logging.New(&log, hclog.Info, logging.Text))
	w, gone := d.dial(), d.dial()
	w.Say("LOCK a,b", granted("a,b"))
	gone.Say("LOCK c mode=shared", granted("c"))
	first.dial().Say("LOCK e", granted("e"))
	gone.Say("TRY a,b", `ERR HELD .*`)
	gone.Say("LOCK e wait=50ms", `ERR HELD .*`)
	gone.Say("TRY a reentrant=yes ttl=1ms", `ERR OPTION .*`) // nobody was in the way
	w.Say("UNLOCK a,b", `OK lock=a,b`)
	w.Say("UNLOCK a,b", `ERR NOTHELD .*`) // releases nothing
	gone.Conn.Close()
	for _, want := range []string{
		`\[INFO\]  lock granted: lock="?a,b"? fence=\d+ user=\S+ pid=\d+ host=\S+ mode=exclusive waited_ms=\d+\n`,
		`\[INFO\]  lock released: lock="?a,b"? fence=\d+ user=\S+ pid=\d+ host=\S+ mode=exclusive held_ms=\d+ reason=unlock\n`,
		`\[INFO\]  lock refused: lock="?a,b"? code=HELD user=\S+ pid=\d+ host=\S+ mode=exclusive waited_ms=\d+ by_host=\S+ by_user=\S+ by_pid=\d+\n`,
		`\[INFO\]  lock refused: lock=e code=HELD user=\S+ pid=\d+ host=\S+ mode=exclusive waited_ms=(?:[5-9]\d|\d{3,}) by_host=\S+ by_user=\S+ by_pid=\d+\n`,
		`\[INFO\]  lock granted: lock=c fence=\d+ user=\S+ pid=\d+ host=\S+ mode=shared waited_ms=\d+\n`,
		`\[INFO\]  lock released: lock=c fence=\d+ user=\S+ pid=\d+ host=\S+ mode=shared held_ms=\d+ reason="connection ended"\n`,
	} {
		line := regexp.MustCompile(want)
		log.AwaitThat(t, want, func(log string) bool { return len(line.FindAllString(log, -1)) == 1 })
	}
	if n := strings.Count(log.String(), "lock released: "); n != 2 {
		t.Errorf("%d releases are logged, want 2:\n%s", n, log.String())
	}

	if n := strings.Count(log.String(), "lock refused: "); n != 2 {
		t.Errorf("%d refusals are logged, want 2:\n%s", n, log.String())
	}

	first.Nodes.Servers[0].Kill()
	nodeless := regexp.MustCompile(`lock refused: lock=f code=NOQUORUM user=\S+ pid=\d+ host=\S+ mode=exclusive waited_ms=\d+\n`)
	w.Until("TRY f", `ERR NOQUORUM`)
	log.AwaitThat(t, "no quorum", nodeless.MatchString)
	if err := first.Nodes.Servers[0].Restart(); err != nil {
		t.Fatal(err)
	}
	first.Nodes.Admit(t)
	w.Until("STATUS", `spare=0\b`)

	off := *d.Cfg
	off.Log.Grants = false
	d.Reload <- &off
	log.Await(t, "config reloaded")
	w.Say("LOCK d", granted("d"))
	d.dial().Say("TRY d", `ERR HELD .*`)
	w.Say("UNLOCK d", `OK lock=d`)
	if strings.Contains(log.String(), "lock=d") {
		t.Errorf("grants are logged after they were switched off:\n%s", log.String())
	}
}
