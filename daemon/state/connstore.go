package state

import (
	"container/list"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/systemd"
)

// ConnStore leaves duplicates of connections with the service manager, so that they outlast
// the process. The manager keeps a limited number, so connections that hold leases or wait for
// one come before idle ones. A nil ConnStore stores none.
type ConnStore struct {
	o        ConnStoreOptions
	capacity int

	wake chan struct{} // of capacity 1

	// mu guards the fields below, and queued of entries. StorableConn.HoldsLeases is called inside
	// it, and takes the mutexes of a session.
	mu           sync.Mutex
	queue        list.List // of *ConnEntry that are not stored, in the order of arrival
	stored       map[*ConnEntry]struct{}
	isFullLogged bool
}

// ConnStoreOptions are the options of NewConnStore.
type ConnStoreOptions struct {
	Manager Manager
	Journal *Journal
	Log     hclog.Logger
	Clock   func() time.Duration // BootTime
	// Marked says that the mark is stored already, see Inherited.
	Marked bool
	// Failed is called with each error of the manager, or with nil if a call succeeded.
	Failed func(error)
}

// Manager is the service manager: a *systemd.Manager.
type Manager interface {
	StoreMax() int
	Store(name string, raw syscall.RawConn) error
	Unstore(name string) error
}

// ConnEntry is a connection in the store.
type ConnEntry struct {
	conn   StorableConn
	number uint64
	opened time.Duration
	queued *list.Element // nil: it is not in the queue
	state  atomic.Int32
}

// StorableConn is a connection.
type StorableConn interface {
	SyscallConn() (syscall.RawConn, error)
	// HoldsLeases reports whether it holds leases or waits for one, so that it should be stored
	// first.
	HoldsLeases() bool
}

// Init sets the fields that do not change.
func (e *ConnEntry) Init(conn StorableConn, number uint64, opened time.Duration) {
	e.conn, e.number, e.opened = conn, number, opened
}

// connPrefix and the number of a connection, in base nameBase, are its name in the manager's store.
const (
	connPrefix = "c-"
	nameBase   = 36
)

// maxStored bounds how many connections are stored. systemd passes all their names in one variable,
// and no process starts with a variable of 128 KiB. These names are shorter for all numbers up to 36¹⁰:
// a thousand years at 100,000 requests a second.
const maxStored = 10_000

// unstoredPrefix and the number of a connection are its name for a process that replaces this one,
// if the manager does not have it.
const unstoredPrefix = "unstored-"

// ConnName is the name of a connection in the manager's store.
func ConnName(number uint64) string { return connPrefix + strconv.FormatUint(number, nameBase) }

// ConnNumber returns the number of a connection that was passed under that name. For other names it
// returns 0, which no connection has.
func ConnNumber(name string) uint64 {
	for prefix, base := range map[string]int{connPrefix: nameBase, unstoredPrefix: nameBase} {
		text, has := strings.CutPrefix(name, prefix)
		if number, err := strconv.ParseUint(text, base, 64); has && err == nil {
			return number
		}
	}
	return 0
}

// IsUnstored reports whether a connection that was passed under that name is not in the manager's
// store: the earlier process has replaced itself by this one.
func IsUnstored(name string) bool { return strings.HasPrefix(name, unstoredPrefix) }

// MarkName names a descriptor of /dev/null, which is stored before any connection. If the manager
// does not hand it over, it has emptied its store, as it does when the service stops. Then a missing
// connection does not mean that its client ended it.
const MarkName = "mark"

// Inherited has the connections that the manager hands over from earlier processes.
type Inherited struct {
	Conns  []systemd.StoredConn
	Marked bool // the mark is there: if a connection is missing, its client ended it
}

// TakeInherited takes the connections that the manager hands over, or the earlier process that has
// replaced itself by this one.
func TakeInherited(m *systemd.Manager) Inherited {
	conns := slices.Concat(m.Stored(connPrefix), m.Stored(unstoredPrefix))
	return Inherited{Conns: conns, Marked: m.CloseStored(MarkName)}
}

// OpenMark opens the file that has MarkName.
func OpenMark() (*os.File, error) { return os.Open(os.DevNull) }

// minAge is the age at which a connection that holds nothing is stored. It keeps users from loading
// the manager with many short connections.
const minAge = 20 * time.Millisecond

// NewConnStore returns nil if the manager stores nothing, or if the journal is not open: without its
// records a stored connection could not continue.
func NewConnStore(o ConnStoreOptions) *ConnStore {
	capacity := min(o.Manager.StoreMax()-1, maxStored) // one place is the mark's
	if !o.Journal.IsOpen() || capacity < 1 {
		return nil
	}
	return &ConnStore{o: o, capacity: capacity, wake: make(chan struct{}, 1), stored: map[*ConnEntry]struct{}{}}
}

// Add stores a connection once it is old enough.
func (st *ConnStore) Add(e *ConnEntry) {
	if st == nil {
		return
	}
	st.mu.Lock()
	st.enqueue(e)
	st.mu.Unlock()
	st.notify()
}

// AddStored adds a connection that an earlier process has stored.
func (st *ConnStore) AddStored(e *ConnEntry) {
	e.markStored()
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dequeue(e)
	st.stored[e] = struct{}{}
}

// Prefer stores soon a connection that now holds a lease or waits for one.
func (st *ConnStore) Prefer(e *ConnEntry) {
	if st != nil && !e.IsStored() {
		st.notify()
	}
}

func (st *ConnStore) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// Remove removes a connection that is closed. The manager detects the end without this.
func (st *ConnStore) Remove(e *ConnEntry) {
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dequeue(e)
	if _, had := st.stored[e]; had && st.queue.Len() > 0 {
		st.notify() // there is room for another one
	}
	delete(st.stored, e)
}

// enqueue requires mu.
func (st *ConnStore) enqueue(e *ConnEntry) { e.queued = st.queue.PushBack(e) }

// dequeue requires mu. It has no effect if the connection is not in the queue.
func (st *ConnStore) dequeue(e *ConnEntry) {
	if e.queued != nil {
		st.queue.Remove(e.queued)
		e.queued = nil
	}
}

// stopTimeout bounds the wait for the end of Run. It may be blocked in a manager that hangs.
const stopTimeout = time.Second

// Start stores connections until stop is called. stop waits at most stopTimeout until Run has ended.
func (st *ConnStore) Start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // stop ends it, and waits for it unless the manager hangs
		defer close(ended)
		st.Run(done)
	}()
	return func() {
		close(done)
		select {
		case <-ended:
		case <-time.After(stopTimeout):
		}
	}
}

// Run stores connections until done is closed.
func (st *ConnStore) Run(done <-chan struct{}) {
	if st == nil {
		return
	}
	if !st.o.Marked {
		st.o.Failed(st.storeMark())
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
		timer.Reset(st.storeDue(st.o.Clock()))
	}
}

// storeMark stores the mark. Without it, the lease of a client that ends while no daemon runs stays
// until its deadline.
func (st *ConnStore) storeMark() error {
	null, err := OpenMark()
	if err != nil {
		return err
	}
	defer null.Close()
	raw, err := null.SyscallConn()
	if err != nil {
		return err
	}
	return st.o.Manager.Store(MarkName, raw)
}

// storeDue stores the connections that are due, and returns the time until the next one is.
func (st *ConnStore) storeDue(now time.Duration) time.Duration {
	for {
		e, evicted, next := st.next(now)
		if e == nil {
			return next
		}
		if evicted != nil {
			st.o.Journal.ConnOpened(evicted.number, false)
			st.o.Failed(st.o.Manager.Unstore(ConnName(evicted.number)))
		}
		st.store(e)
	}
}

// next returns the connection to store now, and the one to evict for it; nil: there is
// room. If there is no connection, it returns the time until there may be one.
func (st *ConnStore) next(now time.Duration) (e, evicted *ConnEntry, next time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	next = time.Hour // Add, Prefer and Remove wake it
	room := len(st.stored) < st.capacity
	for element := st.queue.Front(); element != nil; element = element.Next() {
		waiting := element.Value.(*ConnEntry)
		if left := waiting.opened + minAge - now; left > 0 && !waiting.conn.HoldsLeases() {
			next = min(next, left)
			continue
		}
		if !room {
			if !st.isFullLogged {
				st.isFullLogged = true
				st.o.Log.Warn("the service manager keeps no more connections for a restart: then idle ones are closed with BYE",
					"kept", st.capacity, "wanted", st.wanted())
			}
			if !waiting.conn.HoldsLeases() {
				continue
			}
			if evicted = st.idle(); evicted == nil {
				break
			}
		}
		st.dequeue(waiting)
		if delete(st.stored, evicted); evicted != nil {
			st.enqueue(evicted)
		}
		st.stored[waiting] = struct{}{}
		return waiting, evicted, 0
	}
	if room {
		st.isFullLogged = false
	}
	return nil, nil, next
}

// wanted says how to keep more connections.
func (st *ConnStore) wanted() string {
	if st.capacity == maxStored {
		return "at most this many connections in limits.connections: no more can be kept"
	}
	return "a larger FileDescriptorStoreMax= in redlockd.service, and the same FDSTORE= in its Environment="
}

// idle returns a stored connection that holds nothing, and marks it as not stored. It skips
// connections that are ending or that stay for the next process. It requires mu.
func (st *ConnStore) idle() *ConnEntry {
	for e := range st.stored {
		if !e.conn.HoldsLeases() && e.state.CompareAndSwap(stored, notStored) {
			return e
		}
	}
	return nil
}

// store stores a connection. It is recorded as stored only after the manager has it. If the
// connection ends meanwhile, it must not be recorded: the next process would think that the client
// ended it.
func (st *ConnStore) store(e *ConnEntry) {
	raw, err := e.conn.SyscallConn()
	if err == nil {
		err = st.o.Manager.Store(ConnName(e.number), raw)
	}
	if err != nil {
		st.o.Log.Debug("connection not stored: it has ended, or the service manager has", "error", err)
		return
	}
	if !e.markStored() {
		st.o.Failed(st.o.Manager.Unstore(ConnName(e.number)))
		return
	}
	st.o.Journal.ConnOpened(e.number, true)
	if !e.IsStored() {
		st.o.Journal.ConnOpened(e.number, false)
	}
	if st.isRemoved(e) {
		st.o.Journal.ConnClosed(e.number)
	}
}

// isRemoved reports whether Remove was called for a connection that is being stored.
func (st *ConnStore) isRemoved(e *ConnEntry) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, there := st.stored[e]
	return !there
}

// The states of a ConnEntry. The last three are final: the daemon ended the connection, or leaves it
// for the next process, by way of the manager or only as a descriptor (Replace).
const (
	notStored int32 = iota
	stored
	neverStored
	staysStored
	passedOnly
)

// IsStored reports whether the manager has the connection.
func (e *ConnEntry) IsStored() bool {
	state := e.state.Load()
	return state == stored || state == staysStored
}

// markStored returns false if the connection must not be stored.
func (e *ConnEntry) markStored() bool { return e.state.CompareAndSwap(notStored, stored) }

// NeverStore makes sure that the connection is not stored from now on, and reports whether it was.
func (e *ConnEntry) NeverStore() (was bool) {
	state := e.state.Swap(neverStored)
	return state == stored || state == staysStored
}

// FixState reports whether the connection is stored. Its state cannot change from now on.
func (e *ConnEntry) FixState() bool {
	_ = e.state.CompareAndSwap(notStored, neverStored) || e.state.CompareAndSwap(stored, staysStored)
	return e.IsStored()
}

// FixPassed is FixState for a process that replaces itself: it also keeps a connection that is not
// stored, unless the daemon has cut it.
func (e *ConnEntry) FixPassed() (kept bool) {
	for {
		switch state := e.state.Load(); state {
		case neverStored:
			return false
		case notStored:
			if e.state.CompareAndSwap(notStored, passedOnly) {
				return true
			}
		default:
			if e.state.CompareAndSwap(state, staysStored) {
				return true
			}
		}
	}
}

// Passed returns the connection for the process that replaces this one. FixPassed has kept it.
func (e *ConnEntry) Passed() (systemd.Passed, error) {
	name := ConnName(e.number)
	if !e.IsStored() {
		name = unstoredPrefix + strconv.FormatUint(e.number, nameBase)
	}
	raw, err := e.conn.SyscallConn()
	return systemd.Passed{Name: name, FD: raw}, err
}
