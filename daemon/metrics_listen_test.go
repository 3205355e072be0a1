package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

// If the metrics port is in use, which any user of the host can cause, the daemon serves clients all
// the same. It logs that, and when it serves metrics after the port is free.
func TestMetricsPortInUse(t *testing.T) {
	t.Parallel() // it mostly waits
	first := startWithMetrics(t, 1)
	var log daemontest.Log
	d := first.another(logging.New(&log, hclog.Info, logging.Text))
	d.dial().Say("LOCK a", granted5)
	const logged = "[ERROR] metrics are not served"
	for _, want := range []string{logged, "address=" + d.Cfg.Metrics.Address, "address already in use", "ss -ltnp", "retry_in=3s"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not logged:\n%s", want, log.String())
		}
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	log.Await(t, "[INFO]  serving metrics: url=http://"+d.Cfg.Metrics.Address)
	d.scrape().want(t, scraped{"redlockd_leases": 1})
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "no longer served") {
		t.Errorf("the end of the server is logged as a fault:\n%s", log.String())
	}
}

// A daemon that waits for the metrics port stops normally, and does not take the port later.
func TestStopWhileTheMetricsPortIsInUse(t *testing.T) {
	first := startWithMetrics(t, 1)
	d := first.another(nil)
	ended := make(chan error, 1)
	go func() { ended <- d.Stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(daemontest.Patience):
		t.Fatal("the daemon does not stop")
	}
	first.scrape()
}
