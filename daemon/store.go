package daemon

import (
	"container/list"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/systemd"
)

// store keeps duplicates of connections with the service manager, so that they
// outlast the process. The manager has so many places. Where there are more
// connections, those have them that hold leases, or wait for one, before idle ones.
// A nil store keeps none.
type store struct {
	d       *daemon
	manager *systemd.Manager
	places  int
	marked  bool // the mark is stored; only run goes by it

	wake chan struct{} // of capacity 1

	mu     sync.Mutex // guards what follows
	queue  list.List  // of sessions that are not stored, and want to be, in the order in which they came
	stored map[*session]struct{}
	full   bool // it was said that there are too many
}

// Connections are known to the manager by these names, and their numbers.
const storedPrefix = "conn-"

func storedName(number uint64) string { return storedPrefix + strconv.FormatUint(number, 10) }

// storedNumber is the reverse of storedName; of another name it is a number that no
// connection has.
func storedNumber(name string) uint64 {
	number, _ := strconv.ParseUint(strings.TrimPrefix(name, storedPrefix), 10, 64)
	return number
}

// storeMark is a descriptor of nothing, which is stored before any connection. Where
// it is not handed over, the manager has emptied its store, as it does where the
// service is stopped: that a connection is missing says nothing about its client then.
const storeMark = "mark"

// inheritance is what the manager hands over of earlier processes.
type inheritance struct {
	conns  []systemd.StoredConn
	marked bool // with the mark: connections that are missing were ended by their clients
}

func takeStored(m *systemd.Manager) inheritance {
	return inheritance{conns: m.Stored(storedPrefix), marked: m.Take(storeMark)}
}

// storeAge is how long a connection has lived that holds nothing before it is stored:
// those of a moment are not worth the manager's time, of which every user could take
// as much as he likes.
const storeAge = 20 * time.Millisecond

// newStore is nil where the manager keeps nothing, or there is nothing beside the
// connections that outlasts the process.
func newStore(d *daemon, manager *systemd.Manager, marked bool) *store {
	places := manager.StoreMax() - 1 // and the mark's
	if d.ledger == nil || places < 1 {
		return nil
	}
	return &store{d: d, manager: manager, places: places, marked: marked, wake: make(chan struct{}, 1), stored: map[*session]struct{}{}}
}

// add has a connection stored, when it has lived for a moment.
func (st *store) add(s *session) {
	if st == nil {
		return
	}
	st.mu.Lock()
	st.enqueue(s)
	st.mu.Unlock()
	st.ring()
}

// has notes a connection that an earlier process has stored.
func (st *store) has(s *session) {
	s.stored.begin()
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stored[s] = struct{}{}
}

// want has a connection stored that holds something now.
func (st *store) want(s *session) {
	if st != nil && !s.stored.now() {
		st.ring()
	}
}

func (st *store) ring() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// remove forgets a connection that is over: the manager sees that by itself.
func (st *store) remove(s *session) {
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dequeue(s)
	if _, had := st.stored[s]; had && st.queue.Len() > 0 {
		st.ring() // there is room for another one
	}
	delete(st.stored, s)
}

// enqueue needs mu.
func (st *store) enqueue(s *session) { s.queued = st.queue.PushBack(s) }

// dequeue needs mu. A connection may be in the queue or not.
func (st *store) dequeue(s *session) {
	if s.queued != nil {
		st.queue.Remove(s.queued)
		s.queued = nil
	}
}

// run stores connections until done is closed. It may block in the manager, whom
// nobody waits for but it.
func (st *store) run(done <-chan struct{}) {
	if st == nil {
		return
	}
	if !st.marked {
		st.d.tell(st.mark())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-st.wake:
		case <-timer.C:
		case <-done:
			return
		}
		timer.Reset(st.storeAll(st.d.clock()))
	}
}

// mark stores the mark. Without it leases stay for their validity whose clients end
// while there is no daemon.
func (st *store) mark() error {
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()
	raw, err := nothing.SyscallConn()
	if err != nil {
		return err
	}
	return st.manager.Store(storeMark, raw)
}

// storeAll stores what is due, and returns the time until something is.
func (st *store) storeAll(now time.Duration) time.Duration {
	for {
		s, out, next := st.next(now)
		if s == nil {
			return next
		}
		if out != nil {
			st.evict(out)
		}
		st.keep(s)
	}
}

// next is a connection that is to be stored now, and the one whose place it gets;
// nil: there is room. Or how long there is nothing to do.
func (st *store) next(now time.Duration) (s, out *session, next time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	next = time.Hour // add, want and remove ring
	room := len(st.stored) < st.places
	for e := st.queue.Front(); e != nil; e = e.Next() {
		waits := e.Value.(*session)
		if left := waits.opened + storeAge - now; left > 0 && !waits.holds() {
			next = min(next, left)
			continue
		}
		if !room {
			st.sayFull()
			if !waits.holds() {
				continue
			}
			if out = st.idle(); out == nil {
				break
			}
		}
		st.dequeue(waits)
		if delete(st.stored, out); out != nil {
			st.enqueue(out)
		}
		st.stored[waits] = struct{}{}
		return waits, out, 0
	}
	if room {
		st.full = false
	}
	return nil, nil, next
}

// sayFull needs mu.
func (st *store) sayFull() {
	if !st.full {
		st.full = true
		st.d.log.Warn("the service manager keeps no more connections for a restart: idle ones are cut then, and told so",
			"kept", st.places, "wanted", "a larger FileDescriptorStoreMax= in redlockd.service, and the same FDSTORE= in its Environment=")
	}
}

// idle is a connection that was stored until now, and holds nothing: none that comes to
// its end, nor one of which it is settled that it is kept. It needs mu.
func (st *store) idle() *session {
	for s := range st.stored {
		if !s.holds() && s.stored.pause() {
			return s
		}
	}
	return nil
}

// keep stores one. It is noted when the manager has it for sure; and not where it has
// come to its end meanwhile: it would seem to have been ended by its client.
func (st *store) keep(s *session) {
	raw, err := s.conn.SyscallConn()
	if err == nil {
		err = st.manager.Store(storedName(s.number), raw)
	}
	if err != nil {
		st.d.log.Debug("connection not stored: it is over, or the service manager is", "error", err)
		return
	}
	if !s.stored.begin() {
		st.d.tell(st.manager.Unstore(storedName(s.number)))
		return
	}
	st.d.ledger.conn(s.number, true)
	if !s.stored.now() {
		st.d.ledger.conn(s.number, false)
	}
	if st.isOver(s) {
		st.d.ledger.connEnd(s.number)
	}
}

// isOver tells whether the end of a connection that is being stored was noted.
func (st *store) isOver(s *session) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, there := st.stored[s]
	return !there
}

// evict takes one out. It is noted before.
func (st *store) evict(s *session) {
	st.d.ledger.conn(s.number, false)
	st.d.tell(st.manager.Unstore(storedName(s.number)))
}

// storing is whether a connection is stored. That ends changing when the connection is
// ended by us, or left as it is for the next process.
type storing struct{ state atomic.Int32 }

const (
	notStored int32 = iota
	isStored
	neverStored // from now on
	staysStored
)

func (s *storing) now() bool {
	state := s.state.Load()
	return state == isStored || state == staysStored
}

// begin is false if it is never to be stored again.
func (s *storing) begin() bool { return s.state.CompareAndSwap(notStored, isStored) }

// pause is false if it is not stored, or stays so.
func (s *storing) pause() bool { return s.state.CompareAndSwap(isStored, notStored) }

// end has it never be stored again, and tells whether it was.
func (s *storing) end() (was bool) {
	state := s.state.Swap(neverStored)
	return state == isStored || state == staysStored
}

// settle tells whether it is stored, and has that be so for good.
func (s *storing) settle() bool {
	_ = s.state.CompareAndSwap(notStored, neverStored) || s.state.CompareAndSwap(isStored, staysStored)
	return s.now()
}

// holds tells whether the connection holds leases, or asks for some: it has more to
// lose than others.
func (s *session) holds() bool {
	return s.desk.inUse() || s.awaits.Load() > 0 || len(s.entrusted()) > 0
}

func (k *desk) inUse() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holdings) > 0 || len(k.asks) > 0
}
