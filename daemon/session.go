package daemon

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// session is what the daemon knows of one connection.
type session struct {
	d    *daemon
	conn *ipc.Conn
	pid  int
	user string
	rate rate

	caller // the process at the other end

	inputEnded chan struct{} // closed when the client will send nothing more

	mu       sync.Mutex         // guards what follows
	holdings map[ident]*holding // held, and lost ones that are remembered: each by all of its names
	lost     []*holding         // those that are remembered, the oldest first
	asks     map[ident]*ask     // LOCKs under way, in the same way
}

// maxRemembered bounds the lost leases that a connection can ask about.
const maxRemembered = 1000

// ident is what one name of a lock goes by on a connection.
type ident struct{ owner, name string }

// Begin is the one switch over verbs, in the order of the protocol's table.
// What it can answer from memory it answers; the rest is work that waits.
func (s *session) Begin(call *ipc.Call) ipc.Work {
	if s.tooFast(call.Verb) {
		return s.refuse(call, s.d.limits.tooFast())
	}
	if err := s.permit(call); err != nil {
		return s.deny(call, err)
	}
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return s.lock(call)
	case ipc.VerbUnlock:
		return s.unlock(call)
	case ipc.VerbCancel:
		return s.cancel(call)
	case ipc.VerbAdmit:
		return s.admit(call)
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
	case ipc.VerbForce:
		return s.force(call)
	case ipc.VerbPing:
		return reply(call, ok(call))
	case ipc.VerbHello:
		return s.hello(call)
	case ipc.VerbHelp:
		return s.help(call)
	case ipc.VerbQuit:
		return s.quit(call)
	default: // RESUME BEAT
		return s.refuse(call, notYet(call.Verb))
	}
}

// tooFast: what gives something back is never refused.
func (s *session) tooFast(verb ipc.Verb) bool {
	perSecond := s.d.limits.requestRate()
	switch {
	case perSecond == 0, verb == ipc.VerbUnlock, verb == ipc.VerbCancel, verb == ipc.VerbQuit:
		return false
	}
	return !s.rate.allow(perSecond, s.d.clock())
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
	s.holdings, s.lost = nil, nil
	s.mu.Unlock()
	for at, h := range holdings {
		if at.name != h.names()[0] {
			continue // once is enough for several names
		}
		h.detach()
		s.d.abandoned(h, s.conn.WasCut())
	}
	s.d.limits.disconnect(s.uid)
}

// find is the holding that a request speaks of: by lease id from anywhere, or
// by the names it was locked by on this connection, all of them in that order.
func (s *session) find(call *ipc.Call) (*holding, error) {
	if err := unsupportedOptions(call); err != nil {
		return nil, err
	}
	h := s.d.leases.get(call.Lease)
	if !call.Has(ipc.OptLease) {
		h = s.get(ident{call.Owner, call.Names[0]})
	}
	switch {
	case h != nil && s.d.tooOld(h):
		s.d.forget(h)
	case h != nil && (len(call.Names) == 0 || slices.Equal(call.Names, h.names())):
		return h, nil
	case h != nil && !call.Has(ipc.OptLease):
		return nil, heldWithin(call.Names, h.names())
	}
	if len(call.Names) > 0 {
		return nil, notHeld(call.Names)
	}
	return nil, errNoLease
}

func (s *session) get(at ident) *holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdings[at]
}

// remember keeps a lost holding for whoever asks, and forgets the oldest where
// there are too many.
func (s *session) remember(h *holding) {
	s.mu.Lock()
	s.lost = append(s.lost, h)
	var oldest *holding
	if len(s.lost) > maxRemembered {
		oldest = s.lost[0]
		s.lost = slices.Delete(s.lost, 0, 1)
	}
	s.mu.Unlock()
	if oldest != nil {
		s.d.forget(oldest)
	}
}

// add makes h what goes by its names. What went by one of them before was lost:
// a new LOCK by the same owner ends its memory.
func (s *session) add(h *holding) {
	for _, name := range h.names() {
		if before := s.get(ident{h.owner, name}); before != nil {
			s.d.leases.remove(before)
			s.remove(before)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdings == nil {
		s.holdings = map[ident]*holding{}
	}
	for _, name := range h.names() {
		s.holdings[ident{h.owner, name}] = h
	}
}

// answered takes out a LOCK that has come to its end.
func (s *session) answered(a *ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range a.names() {
		delete(s.asks, ident{a.owner, name})
	}
	if a.done != nil {
		close(a.done)
	}
}

// remove forgets a holding, if it is still the one that goes by its names.
func (s *session) remove(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range h.names() {
		if at := (ident{h.owner, name}); s.holdings[at] == h {
			delete(s.holdings, at)
		}
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
	holdings := slices.Collect(maps.Values(s.holdings))
	s.mu.Unlock()
	var shortest time.Duration
	for _, h := range holdings {
		if left := h.lease.Validity(); h.lease.Err() == nil && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}
