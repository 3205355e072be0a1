package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The bounds of who scrapes: slow ones must not pile up.
const (
	scrapeTimeout    = 10 * time.Second // of one request, from its first byte to the last of its answer
	scrapeIdle       = 2 * time.Minute  // Prometheus keeps a connection between scrapes
	scrapesAtOnce    = 4
	scrapeHeaderSize = 16 << 10
	scrapeGrace      = time.Second // for one that runs when the daemon stops
)

// serveMetrics answers Prometheus from now on, at the address of the config, until
// stop is called, which waits for it. Nothing is served where the config has no
// such address. The error: nothing can be listened to there.
func (d *daemon) serveMetrics() (stop func(), err error) {
	if d.cfg.Metrics == nil {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", d.cfg.Metrics.Address)
	if err != nil {
		return nil, fmt.Errorf("metrics.address of the config: %w (another program, or a second redlockd, may listen there: ss -ltnp shows which; choose another port)", err)
	}
	server := d.metricsServer()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	d.log.Info("serving metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	return func() { d.stopMetrics(server, ended) }, nil
}

func (d *daemon) metricsServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry(), promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "redlockd", Version(), "\n/metrics is for Prometheus") // an error has nobody to be told to
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: scrapeTimeout,
		ReadTimeout:       scrapeTimeout,
		WriteTimeout:      2 * scrapeTimeout, // longer than the handler's, which tells what is wrong
		IdleTimeout:       scrapeIdle,
		MaxHeaderBytes:    scrapeHeaderSize,
		ErrorLog:          d.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// stopMetrics ends the server, with what it answers just now if that is quick.
func (d *daemon) stopMetrics(server *http.Server, ended <-chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeGrace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close() // an error has nothing to do with who still reads
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		d.log.Error("metrics could not be served any more", "error", err)
	}
}
