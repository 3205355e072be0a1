package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The bounds of a request: slow clients must not accumulate.
const (
	requestTimeout = 10 * time.Second // from its first byte to the last one of its answer
	idleTimeout    = 2 * time.Minute  // Prometheus keeps a connection between scrapes
	scrapesAtOnce  = 4
	maxHeaderSize  = 16 << 10
	stopTimeout    = time.Second // for requests that run when the daemon stops
)

// Server answers Prometheus at one address.
type Server struct {
	address  string
	log      hclog.Logger
	recorder *Recorder
	snapshot func() Snapshot
}

// NewServer makes a server of what recorder and snapshot know. Start starts it.
func NewServer(address string, log hclog.Logger, recorder *Recorder, snapshot func() Snapshot) *Server {
	return &Server{address: address, log: log, recorder: recorder, snapshot: snapshot}
}

// Start listens and serves in a goroutine, until stop is called; stop waits for it. If
// it cannot listen now, the goroutine retries, and Start returns all the same.
func (s *Server) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server, ended := s.httpServer(), make(chan struct{})
	listener := s.firstListener(ctx)
	go func() {
		defer close(ended)
		if listener == nil {
			listener = s.retryListener(ctx)
		}
		if listener != nil {
			s.serve(server, listener)
		}
	}()
	return func() {
		cancel()
		shutDown(server)
		<-ended
	}
}

func (s *Server) serve(server *http.Server, listener net.Listener) {
	s.log.Info("serving metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	if err := server.Serve(&boundedListener{Listener: listener}); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("metrics are not served any more", "error", err)
	}
}

func (s *Server) httpServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             requestTimeout,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "redlockd", s.snapshot().Version, "\n/metrics is for Prometheus") // the client may be gone
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout, // longer than the handler's, which reports what is wrong
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderSize,
		ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// registry has all metrics of the daemon, of Go and of the process.
func (s *Server) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s.recorder.all...)
	r.MustRegister(collector{s.snapshot}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// shutDown ends the server. Requests that run have stopTimeout to end.
func shutDown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close() // the connections are gone in any case
	}
}
