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
// such address; nor, for as long as that is so, where nobody can listen there.
func (d *daemon) serveMetrics() (stop func()) {
	if d.cfg.Metrics == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, ended := d.metricsServer(), make(chan struct{})
	listener := d.metricsListener(ctx)
	go func() {
		defer close(ended)
		if listener == nil {
			listener = d.awaitMetricsAddress(ctx)
		}
		if listener != nil {
			d.answerPrometheus(server, listener)
		}
	}()
	return func() {
		cancel()
		stopMetrics(server)
		<-ended
	}
}

func (d *daemon) answerPrometheus(server *http.Server, listener net.Listener) {
	d.log.Info("serving metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	if err := server.Serve(&scrapersRoom{Listener: listener}); !errors.Is(err, http.ErrServerClosed) {
		d.log.Error("metrics could not be served any more", "error", err)
	}
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
func stopMetrics(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeGrace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close() // an error has nothing to do with who still reads
	}
}
