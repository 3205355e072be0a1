package metrics

import (
	"fmt"
	"net/http"
)

// healthz answers that the daemon works. The snapshot takes the mutexes of all parts of the daemon,
// so a daemon that hangs does not answer.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.Snapshot()
	answer(w, http.StatusOK, "ok\n")
}

// readyz answers whether locks can be taken: a quorum of nodes may vote, and the daemon does not
// drain.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.Snapshot()
	if snapshot.Draining {
		answer(w, http.StatusServiceUnavailable, "draining: redlockd is stopping, and grants no new locks\n")
		return
	}
	quorum := snapshot.Quorum
	text := fmt.Sprintf("%d of %d nodes may vote, %d are needed\n", quorum.Ready, len(quorum.Nodes), quorum.Quorum)
	if quorum.Spare() < 0 {
		answer(w, http.StatusServiceUnavailable, "not ready: "+text)
		return
	}
	answer(w, http.StatusOK, "ready: "+text)
}

// answer writes plain text that no cache stores. It ignores errors: the client may have
// disconnected.
func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

// limitRequests runs at most requestsAtOnce requests at once, and answers the others with 503.
func limitRequests(next http.HandlerFunc) http.HandlerFunc {
	free := make(chan struct{}, requestsAtOnce)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
			next(w, r)
		default:
			answer(w, http.StatusServiceUnavailable, "too many requests at the same time\n")
		}
	}
}
