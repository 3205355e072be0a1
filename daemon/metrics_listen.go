package daemon

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Any user of the host may have taken the port of the metrics first, and no lock of the
// host hangs on them: the daemon serves without them until it can listen there.

const (
	metricsPause = 3 * time.Second // between tries to listen
	// metricsName bounds each, where the address has a name that is to be looked up: the
	// first one has the clients wait.
	metricsName = time.Second
)

// metricsListener listens at the address of the config. Nil: it cannot be done now, and
// that was logged.
func (d *daemon) metricsListener(ctx context.Context) net.Listener {
	listener, err := d.listenForMetrics(ctx)
	if err != nil {
		d.log.Error("there are no metrics: nothing can be listened to at their address; locks are served without them", "address", d.cfg.Metrics.Address,
			"error", err, "what to do", metricsAdvice(err), "tried again every", metricsPause)
		return nil
	}
	return listener
}

// metricsAdvice says what to do about an address that nobody can listen at.
func metricsAdvice(err error) string {
	const another = ", or restart redlockd with another metrics.address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "ss -ltnp shows who listens there, maybe a second redlockd: end that" + another
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 are root's: restart redlockd with another one in metrics.address"
	}
	return "see to it that this host has that address (ip address)" + another
}

// awaitMetricsAddress tries until it can be listened to there, or ctx ends: nil then.
func (d *daemon) awaitMetricsAddress(ctx context.Context) net.Listener {
	again := time.NewTicker(metricsPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		if listener, err := d.listenForMetrics(ctx); err == nil {
			return listener
		}
	}
}

func (d *daemon) listenForMetrics(ctx context.Context) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsName)
	defer cancel()
	return new(net.ListenConfig).Listen(ctx, "tcp", d.cfg.Metrics.Address)
}
