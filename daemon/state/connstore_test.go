package state

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/systemd"
)

// storeTest is a ConnStore with fake connections.
type storeTest struct {
	*ConnStore
	t      *testing.T
	socket string
	now    time.Duration
}

// fakeConn is a connection that holds a lease or does not.
type fakeConn struct{ holds bool }

func (c *fakeConn) SyscallConn() (syscall.RawConn, error) { return nil, nil }
func (c *fakeConn) HoldsLeases() bool                     { return c.holds }

// fakeManager accepts everything. Its value is its capacity, including the mark.
type fakeManager int

func (m fakeManager) StoreMax() int                     { return int(m) }
func (fakeManager) Store(string, syscall.RawConn) error { return nil }
func (fakeManager) Unstore(string) error                { return nil }

func newStoreTest(t *testing.T, capacity int) *storeTest {
	t.Helper()
	st := &storeTest{t: t, socket: filepath.Join(t.TempDir(), "s"), now: time.Hour}
	journal, _ := openJournal(t, st.socket)
	st.ConnStore = NewConnStore(ConnStoreOptions{
		Manager: fakeManager(capacity + 1), Journal: journal, Log: hclog.NewNullLogger(),
		Clock: func() time.Duration { return st.now },
		Failed: func(err error) {
			if err != nil {
				t.Error(err)
			}
		},
	})
	return st
}

// open opens a connection as the daemon does.
func (st *storeTest) open() *ConnEntry {
	e := new(ConnEntry)
	e.Init(new(fakeConn), st.o.Journal.NextNumber(), st.now)
	st.o.Journal.ConnOpened(e.number, false)
	st.Add(e)
	return e
}

// close closes a connection as the daemon does.
func (st *storeTest) close(e *ConnEntry) {
	st.Remove(e)
	st.o.Journal.ConnClosed(e.number)
}

// recovered returns what the next daemon recovers.
func (st *storeTest) recovered() *Recovered {
	st.o.Journal.Close()
	next, recovered := openJournal(st.t, st.socket)
	next.Close()
	return recovered
}

// If a connection ends while it is being stored, it must not be recorded as stored: the next daemon
// would think that its client ended it.
func TestConnEndsWhileItIsStored(t *testing.T) {
	st := newStoreTest(t, 10)
	over, ending, cut, kept := st.open(), st.open(), st.open(), st.open()
	for _, e := range []*ConnEntry{over, ending, cut, kept} {
		st.stored[e] = struct{}{}
	}
	st.close(over)
	if ending.FixState() {
		t.Error("Settle reports an unstored connection as stored")
	}
	cut.NeverStore()
	for _, e := range []*ConnEntry{over, ending, cut, kept} {
		st.store(e)
	}
	if !kept.FixState() {
		t.Error("Settle reports a stored connection as not stored")
	}
	if st.idle() != nil {
		t.Error("a connection that must stay for the next daemon is evicted")
	}
	recovered := st.recovered()
	if recovered.Conns[over.number] != nil {
		t.Error("a connection that has ended is recorded again")
	}
	for e, want := range map[*ConnEntry]bool{ending: false, cut: false, kept: true} {
		if got := recovered.Conns[e.number]; got == nil || got.Stored != want {
			t.Errorf("connection %d: got %+v, want stored: %v", e.number, got, want)
		}
	}
}

// A connection that ends leaves the queue. The ones behind it are stored in order.
func TestConnsAreStoredInOrder(t *testing.T) {
	st := newStoreTest(t, 2)
	all := make([]*ConnEntry, 5)
	for i := range all {
		all[i] = st.open()
	}
	st.close(all[1])
	for _, want := range []*ConnEntry{all[0], all[2]} {
		if e, evicted, _ := st.next(st.now + minAge); e != want || evicted != nil {
			t.Fatalf("got connection %v, evicting %v; want %d without eviction", e, evicted, want.number)
		}
	}
	<-st.wake
	if e, _, _ := st.next(st.now + minAge); e != nil {
		t.Fatalf("connection %d is to be stored, but there is no room", e.number)
	}
	st.close(all[3]) // not stored, so it makes no room
	if len(st.wake) != 0 {
		t.Error("the store was woken without a change")
	}
	st.close(all[0])
	if e, _, _ := st.next(st.now + minAge); e != all[4] || len(st.wake) != 1 {
		t.Errorf("got %v, want connection %d, and the store woken once", e, all[4].number)
	}
}

// A connection that is ending is not evicted for a connection that holds a lease: the manager may
// still have it. The other one gets the place when the first one has ended.
func TestEndingConnIsNotEvicted(t *testing.T) {
	st := newStoreTest(t, 1)
	ending, holder := st.open(), st.open()
	st.storeDue(st.now + minAge)
	if ending.NeverStore() {
		st.o.Journal.ConnOpened(ending.number, false)
	}
	holder.conn.(*fakeConn).holds = true
	if next := st.storeDue(st.now + minAge); next == 0 || holder.IsStored() {
		t.Errorf("the next look is in %v, want a later one; the holder is stored: %v, want not", next, holder.IsStored())
	}
	st.close(ending)
	st.storeDue(st.now + minAge)
	if !st.recovered().Conns[holder.number].Stored {
		t.Error("the connection of the holder is never stored")
	}
}

// Connections that an earlier process stored count toward the capacity: the manager silently drops
// descriptors above its limit.
func TestRestoredConnsCount(t *testing.T) {
	st := newStoreTest(t, 1)
	before := new(ConnEntry)
	before.Init(new(fakeConn), 7, st.now)
	st.AddStored(before)
	after := st.open()
	if e, _, _ := st.next(st.now + minAge); e != nil {
		t.Fatalf("connection %d is to be stored, but there is no room", e.number)
	}
	if !before.FixState() {
		t.Error("the restored connection does not stay stored")
	}
	st.close(before)
	if e, _, _ := st.next(st.now + minAge); e != after {
		t.Errorf("got %v, want connection %d: there is room now", e, after.number)
	}
}

// A connection that begins to hold a lease replaces an idle one at once.
func TestPreferredConnIsStoredAtOnce(t *testing.T) {
	st := newStoreTest(t, 1)
	idle, next := st.open(), st.open()
	st.storeDue(st.now + minAge)
	<-st.wake
	next.conn.(*fakeConn).holds = true
	st.Prefer(next)
	select {
	case <-st.wake:
	default:
		t.Error("the store was not woken")
	}
	st.storeDue(st.now + minAge)
	if conns := st.recovered().Conns; !conns[next.number].Stored || conns[idle.number].Stored {
		t.Errorf("stored: the holder %v, the idle one %v; want only the holder", conns[next.number].Stored, conns[idle.number].Stored)
	}
}

// busyManager blocks in Store until released is closed.
type busyManager struct {
	fakeManager
	asked, released chan struct{}
	stored          atomic.Bool
}

func (m *busyManager) Store(string, syscall.RawConn) error {
	close(m.asked)
	<-m.released
	m.stored.Store(true)
	return nil
}

// stop waits for the connection that is being stored, but at most stopTimeout if the manager hangs.
func TestStopWaitsForTheManager(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := newStoreTest(t, 1)
			m := &busyManager{fakeManager: 2, asked: make(chan struct{}), released: make(chan struct{})}
			st.o.Manager = m
			stop := st.Start()
			<-m.asked // for the mark
			if !hangs {
				time.AfterFunc(stopTimeout/2, func() { close(m.released) })
			}
			began := time.Now()
			stop()
			if took, want := time.Since(began), map[bool]time.Duration{false: stopTimeout / 2, true: stopTimeout}[hangs]; took != want || m.stored.Load() == hangs {
				t.Errorf("the manager hangs: %v: stopped after %v, want %v; stored: %v", hangs, took, want, m.stored.Load())
			}
			if hangs {
				close(m.released)
			}
		})
	}
}

// A process starts with the names of all stored connections in one variable, also after very many
// requests.
func TestNamesFitIntoAVariable(t *testing.T) {
	st := newStoreTest(t, 1_000_000)
	var names strings.Builder
	names.WriteString("LISTEN_FDNAMES=" + systemd.ListenerName + ":" + MarkName)
	for i := range uint64(st.capacity) {
		number := 3_000_000_000_000_000 + i // 100,000 requests a second, for thousand years
		name := ConnName(number)
		if names.WriteString(":" + name); ConnNumber(name) != number || IsUnstored(name) {
			t.Fatalf("got the number %d for %s, want %d", ConnNumber(name), name, number)
		}
	}
	cmd := exec.Command("true")
	cmd.Env = []string{names.String()}
	if err := cmd.Run(); err != nil {
		t.Errorf("with %d bytes: %v", names.Len(), err)
	}
	if st.capacity < 10_000 {
		t.Errorf("the store has room for %d connections, want the default of limits.connections", st.capacity)
	}
}

// Names of connections that only a process passes, have their numbers.
func TestConnNumber(t *testing.T) {
	for name, want := range map[string]uint64{"c-10": 36, "unstored-10": 36, "mark": 0, "c-": 0, "conn-x": 0, "c--1": 0} {
		if got := ConnNumber(name); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}
