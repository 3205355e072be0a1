package metrics

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The port may be taken: any user of the host can listen there first. No lock depends
// on metrics, so the daemon serves without them until it can listen.
const (
	retryListen = 3 * time.Second // between attempts to listen
	// lookUpTimeout bounds one attempt if the address has a host name: the daemon serves clients
	// only after the first attempt.
	lookUpTimeout = time.Second
)

// firstListener listens at the address of the config. If it cannot, it logs why and returns nil.
func (s *Server) firstListener(ctx context.Context) net.Listener {
	listener, err := s.listen(ctx)
	if err != nil {
		s.Log.Error("metrics are not served: cannot listen at metrics.address; locks are not affected", "address", s.Address,
			"error", err, "fix", listenAdvice(err), "retry_in", retryListen)
		return nil
	}
	return listener
}

// listenAdvice says what to do about an address that the daemon cannot listen at.
func listenAdvice(err error) string {
	const another = ", or set another metrics.address and reload redlockd"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "ss -ltnp shows the process that listens there, maybe a second redlockd: end it" + another
	case errors.Is(err, syscall.EACCES):
		return "only root can use ports below 1024: set another one in metrics.address and reload redlockd"
	}
	return "check that this host has that address (ip address)" + another
}

// retryListener retries until it can listen. It returns nil when ctx ends.
func (s *Server) retryListener(ctx context.Context) net.Listener {
	again := time.NewTicker(retryListen)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		if listener, err := s.listen(ctx); err == nil {
			return listener
		}
	}
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
}

// MaxConnections is how many clients can be connected at once: enough for several Prometheus servers
// and a few browsers.
const MaxConnections = 32

// boundedListener closes its oldest connection when there are more than MaxConnections. Any user of
// the host can connect here, and each connection takes a descriptor that lock clients and nodes need.
// If it refused new connections instead, idle ones could keep Prometheus out.
type boundedListener struct {
	net.Listener

	mu   sync.Mutex // guards open; nothing is locked inside it
	open []*scrape  // oldest first
}

func (r *boundedListener) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := &scrape{Conn: conn, from: r}
	if first := r.add(s); first != nil {
		first.Close() // its error does not concern the new connection
	}
	return s, nil
}

// add returns the connection to close, or nil.
func (r *boundedListener) add(s *scrape) (first *scrape) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, s)
	if len(r.open) > MaxConnections {
		first = r.open[0]
	}
	return first
}

func (r *boundedListener) remove(s *scrape) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.open, s); i >= 0 {
		r.open = slices.Delete(r.open, i, i+1)
	}
}

// scrape is an accepted connection. Close may be called more than once.
type scrape struct {
	net.Conn
	from *boundedListener
}

func (s *scrape) Close() error {
	s.from.remove(s)
	return s.Conn.Close()
}
