package daemon

import (
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// session is what the daemon knows of one connection.
type session struct {
	d    *daemon
	conn *ipc.Conn
	uid  int // of the process at the other end; -1: not known
	pid  int
	user string
	rate rate

	inputEnded chan struct{} // closed when the client will send nothing more

	mu       sync.Mutex         // guards what follows
	holdings map[ident]*holding // held, and lost ones that are remembered
	asks     map[ident]*ask     // LOCKs under way
}

// ident is what a lock goes by on a connection.
type ident struct{ owner, name string }

// Begin is the one switch over verbs, in the order of the protocol's table.
// What it can answer from memory it answers; the rest is work that waits.
func (s *session) Begin(call *ipc.Call) ipc.Work {
	if perSecond := s.d.limits.requestRate(); perSecond != 0 && !s.rate.allow(perSecond, s.d.clock()) {
		return s.refuse(call, s.d.limits.tooFast())
	}
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return s.lock(call)
	case ipc.VerbUnlock:
		return s.unlock(call)
	case ipc.VerbCancel:
		return s.cancel(call)
	case ipc.VerbExtend:
		return s.extend(call)
	case ipc.VerbCheck:
		return s.check(call)
	case ipc.VerbWho:
		return &who{s, call}
	case ipc.VerbList:
		return s.list(call)
	case ipc.VerbStatus:
		return s.status(call)
	case ipc.VerbPing:
		return reply(call, ok(call))
	case ipc.VerbHello:
		return s.hello(call)
	case ipc.VerbHelp:
		return s.help(call)
	case ipc.VerbQuit:
		return s.quit(call)
	default: // ADMIT RESUME BEAT FORCE
		return s.refuse(call, notYet(call.Verb))
	}
}

func (s *session) cancel(call *ipc.Call) ipc.Work {
	s.conn.Cancel(call.Words[0])
	return reply(call, ok(call))
}

func (s *session) quit(call *ipc.Call) ipc.Work {
	s.conn.CloseAfterReplies()
	return reply(call, ok(call))
}

// InputEnded lets the LOCKs that only wait go: nobody is left to hold them.
// One whose first attempt is under way is answered.
func (s *session) InputEnded(bool) { close(s.inputEnded) }

// Close gives back what was held by this connection, unless it is the daemon
// that stops: then its client may be in the middle of its work.
func (s *session) Close() {
	s.mu.Lock()
	holdings := s.holdings
	s.holdings = nil
	s.mu.Unlock()
	for _, h := range holdings {
		h.detach()
		s.d.abandoned(h)
	}
	s.d.limits.disconnect(s.uid)
}

// identOf is what a request goes by on its connection.
func identOf(call *ipc.Call, name string) ident { return ident{call.Owner, name} }

// find is the holding that a request speaks of: by lease id from anywhere, or
// by the name it was locked by on this connection.
func (s *session) find(call *ipc.Call) (*holding, error) {
	if call.Has(ipc.OptLease) {
		return s.d.findLease(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdings[identOf(call, call.Names[0])]; h != nil {
		return h, nil
	}
	return nil, notHeld(call.Names[0])
}

func (s *session) add(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdings == nil {
		s.holdings = map[ident]*holding{}
	}
	at := ident{h.owner, h.name}
	if before := s.holdings[at]; before != nil { // lost: a new LOCK by the same owner ends its memory
		defer s.d.leases.remove(before)
	}
	s.holdings[at] = h
}

// answered takes out a LOCK that has come to its end.
func (s *session) answered(a *ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asks, ident{a.owner, a.name})
	if a.done != nil {
		close(a.done)
	}
}

// remove forgets a holding, if it is still the one that goes by its ident.
func (s *session) remove(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := (ident{h.owner, h.name}); s.holdings[at] == h {
		delete(s.holdings, at)
	}
}

// rate is a token bucket of one second's requests.
type rate struct {
	tokens float64
	last   time.Duration
}

// allow is for the goroutine that reads the connection.
func (r *rate) allow(perSecond int, now time.Duration) bool {
	limit := float64(perSecond)
	if r.last == 0 {
		r.tokens = limit
	} else {
		r.tokens = min(limit, r.tokens+limit*(now-r.last).Seconds())
	}
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// resume is how long the leases of this connection stay on the nodes when
// nobody extends them: the shortest validity; 0 where there are none.
func (s *session) resume() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shortest time.Duration
	for _, h := range s.holdings {
		if left := h.lease.Validity(); h.lease.Err() == nil && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}
