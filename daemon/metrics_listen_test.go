package daemon

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
)

// TestMetricsPortInUse: any user of the host can have taken it, and the daemon serves all
// the same. It says so, and that there are metrics as soon as the port is free.
func TestMetricsPortInUse(t *testing.T) {
	t.Parallel() // it mostly waits
	first := startMeasured(t, 1)
	var log logged
	d := first.anotherThatLogs(logging.New(&log, hclog.Info, logging.Text))
	d.dial().say("LOCK a", granted5)
	const said = "[ERROR] there are no metrics"
	for _, want := range []string{said, "address=" + d.cfg.Metrics.Address, "address already in use", "ss -ltnp", "tried again every=3s"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not logged:\n%s", want, log.String())
		}
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "metrics are served", func() bool {
		return strings.Contains(log.String(), "[INFO]  serving metrics: url=http://"+d.cfg.Metrics.Address)
	})
	d.scrape().want(t, scraped{"redlockd_leases": 1})
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "could not be served") {
		t.Errorf("its end is taken for a fault:\n%s", log.String())
	}
}

// TestMetricsPortIsAwaited: it is tried every few seconds, and that is not said again.
func TestMetricsPortIsAwaited(t *testing.T) {
	var log logged
	d := &daemon{cfg: &config.Config{Metrics: &config.Metrics{Address: ownAddress()}}, log: logging.New(&log, hclog.Trace, logging.Text)}
	other, err := net.Listen("tcp", d.cfg.Metrics.Address)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		got := make(chan net.Listener, 1)
		go func() { got <- d.awaitMetricsAddress(t.Context()) }()
		time.Sleep(time.Hour)
		if len(got) > 0 || log.String() != "" {
			t.Errorf("got %d listeners where another one listens, want none, and nothing said:\n%s", len(got), log.String())
		}
		other.Close()
		free := time.Now()
		(<-got).Close()
		if took := time.Since(free); took > metricsPause {
			t.Errorf("the port was free for %v, want %v at most", took, metricsPause)
		}
	})
}

// TestMetricsPortInUseToTheEnd: a daemon that waits for it ends as ever, and takes it no more.
func TestMetricsPortInUseToTheEnd(t *testing.T) {
	first := startMeasured(t, 1)
	d := first.another()
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	first.scrape()
}

// TestMetricsAdvice: what is said to do fits the fault.
func TestMetricsAdvice(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:9852":       "ip address",
		"no-such.invalid:9852": "ip address",
	} {
		d := &daemon{cfg: &config.Config{Metrics: &config.Metrics{Address: address}}}
		_, err := d.listenForMetrics(t.Context())
		if err == nil || !strings.Contains(metricsAdvice(err), want) {
			t.Errorf("%s: got %v, %q; want an error, and %q", address, err, metricsAdvice(err), want)
		}
	}
	if got := metricsAdvice(os.NewSyscallError("bind", syscall.EACCES)); !strings.Contains(got, "1024") {
		t.Errorf("got %q of a port that only root may have", got)
	}
}

// TestMetricsNameIsNotAwaited: clients wait for the first try, and a name server may be silent.
func TestMetricsNameIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := net.DefaultResolver
		defer func() { net.DefaultResolver = before }()
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		d := &daemon{cfg: &config.Config{Metrics: &config.Metrics{Address: "web1.example:9852"}}}
		began := time.Now()
		if _, err := d.listenForMetrics(t.Context()); err == nil || time.Since(began) > metricsName {
			t.Errorf("got %v after %v, want an error within %v", err, time.Since(began), metricsName)
		}
	})
}
