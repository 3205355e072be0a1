package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/systemd"
)

// If a process cannot replace itself, it ends as if it had been killed: the next daemon gets the
// socket and the leases. It has passed everything by then.
func TestFailedReplace(t *testing.T) {
	if systemd.MayReplace() != nil {
		t.Skip("a process cannot replace itself here")
	}
	d := &testDaemon{daemontest.New(t, 3, serve, nil)}
	var log daemontest.Log
	ready, ended, names := make(chan struct{}), make(chan error, 1), []string{}
	go func() {
		ended <- Run(t.Context(), d.Cfg, logging.New(&log, hclog.Info, logging.Text), RunOptions{Reload: d.Reload, Ready: func() { close(ready) }, Replace: func(passed []systemd.Passed) error {
			for _, p := range passed {
				name, _, _ := strings.Cut(p.Name, "-")
				names = append(names, name)
			}
			return errors.New("no memory")
		}})
	}()
	log.Await(t, "serving: ")
	<-ready
	lease := d.dial().Say("LOCK job ttl=20s", granted5)[0]
	next := *d.Cfg
	next.Drain = time.Second
	d.Reload <- &next
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "restart in place failed") || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("got %v, want the reason", err)
	}
	if got := strings.Join(names, " "); got != "socket lock config mark unstored" {
		t.Errorf("it passed %q", got)
	}
	d.Start()
	d.dial().Say("RESUME job lease="+lease, granted5)
}

// A process that cannot replace itself says that a restart is needed, and continues.
func TestReplaceIsRefused(t *testing.T) {
	var log daemontest.Log
	d := &testDaemon{daemontest.New(t, 3, serve, nil)}
	d.Log = logging.New(&log, hclog.Info, logging.Text)
	d.Start()
	w := d.dial()
	w.Say("LOCK job ttl=20s", granted5)
	next := *d.Cfg
	next.Lease.Linger = time.Second
	d.Reload <- &next
	log.Await(t, `the old one stays in effect: error="a restart is needed to change lease: this process cannot replace itself"`)
	w.Say("CHECK job", granted5)
}

func TestCheckMetrics(t *testing.T) {
	metrics := func(address string) *config.Metrics { return &config.Metrics{Address: address} }
	for _, c := range []struct {
		now, next *config.Metrics
		want      string
	}{
		{nil, nil, ""},
		{metrics("127.0.0.1:1"), nil, ""},
		{metrics("192.0.2.1:1"), metrics("192.0.2.1:1"), ""}, // it is retried, as at the start
		{nil, metrics("127.0.0.1:0"), ""},
		{nil, metrics("192.0.2.1:0"), "metrics.address: "},
		{metrics("127.0.0.1:0"), metrics("192.0.2.1:0"), "metrics.address: "},
	} {
		err := checkMetrics(c.now, c.next)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %v to %v: got %v, want %q", c.now, c.next, err, c.want)
		}
	}
}
