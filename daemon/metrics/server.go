package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of requests, so that slow clients do not accumulate.
const (
	requestTimeout = 10 * time.Second // to read the request, and to make the answer
	idleTimeout    = 2 * time.Minute  // Prometheus keeps its connection open between scrapes
	requestsAtOnce = 4
	maxHeaderSize  = 16 << 10
	stopTimeout    = time.Second // for requests in progress when the daemon stops
)

// Options say what a Server serves.
type Options struct {
	Address  string
	Log      hclog.Logger
	Recorder *Recorder
	Snapshot func() Snapshot

	Page  bool          // the status page at /
	Host  string        // this host's name, for the page
	Locks func() []Lock // leases and waiters, for the page; nil: the page shows no names
}

// Server answers Prometheus, health checks and browsers at one address.
type Server struct {
	Options
	rates rates
}

// NewServer makes a server. Start starts it.
func NewServer(o Options) *Server { return &Server{Options: o} }

// Start listens, and serves in a goroutine. If it cannot listen now, the goroutine retries. stop
// ends the goroutine and waits for it.
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
	s.Log.Info("serving metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	if err := server.Serve(&boundedListener{Listener: listener}); !errors.Is(err, http.ErrServerClosed) {
		s.Log.Error("metrics are no longer served", "error", err)
	}
}

func (s *Server) httpServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{
		MaxRequestsInFlight: requestsAtOnce,
		Timeout:             requestTimeout,
	}))
	mux.HandleFunc("GET /healthz", limitRequests(s.healthz))
	mux.HandleFunc("GET /readyz", limitRequests(s.readyz))
	if s.Page {
		mux.HandleFunc("GET /{$}", limitRequests(s.page))
	} else {
		mux.HandleFunc("GET /{$}", limitRequests(s.index))
	}
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout, // longer than the handler's timeout, which answers with an error
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderSize,
		ErrorLog:          s.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// index lists the paths, if the status page is off.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, "redlockd "+s.Snapshot().Version+"\n/metrics is for Prometheus; /healthz and /readyz are for health checks\n")
}

// registry has all metrics of the daemon, of Go and of the process.
func (s *Server) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s.Recorder.all...)
	r.MustRegister(collector{s.Snapshot}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// shutDown ends the server. Requests in progress have stopTimeout to end.
func shutDown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close() // its error does not matter: it closes all connections in any case
	}
}
