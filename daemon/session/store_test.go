package session

import (
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// journalHost returns a Host that only has a journal, and the path of its state file.
func journalHost(t *testing.T) (d *Host, path string) {
	t.Helper()
	path = filepath.Join(daemontest.ShortDir(t), "s")
	d = &Host{Cfg: config.Dev(), Log: hclog.NewNullLogger(), table: locktable.NewTable(), Clock: redlock.BootTime, Limits: access.NewLimits(config.Limits{})}
	d.Journal = state.NewJournal(d.Log)
	if d.Journal.Open(d.journalOptions(path)); !d.Journal.IsOpen() {
		t.Skip("the state file needs Linux")
	}
	return d, path
}

// connection returns the session of a connection that the daemon does not read from.
func (d *Host) connection(t *testing.T) *session {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(daemontest.ShortDir(t), "l"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	nc, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	restored, err := (&server.Server{Open: d.open}).Restore(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return restored.Session().(*session)
}

// recorded closes the journal and returns what the next daemon would restore.
func (d *Host) recorded(path string) *state.Recovered {
	d.Journal.Close()
	next := state.NewJournal(d.Log)
	defer next.Close()
	return next.Open(d.journalOptions(path))
}

// After a RESUME, the connection holds a lease, which the connection store must know.
func TestResumedConnHoldsLeases(t *testing.T) {
	d, _ := journalHost(t)
	next := d.connection(t)
	h := newTestLease(next, "a")
	if next.HoldsLeases() {
		t.Error("a connection without a lease holds leases")
	}
	d.table.Name(&h.Lease)
	if d.noteConnection(next, h, 0); !next.HoldsLeases() {
		t.Error("a connection that resumed a lease holds none")
	}
}

// If two clients resume a lease at once, the winner is recorded, even if no quorum confirms either.
// Otherwise the lease would end with the other connection.
func TestConcurrentResumeIsRecorded(t *testing.T) {
	d, path := journalHost(t)
	d.queue = locktable.New()
	both := [2]*session{d.connection(t), d.connection(t)}
	has := map[uint64]uint64{}
	for number := uint64(10); number < 3000; number++ {
		before := newTestSession(d)
		h := newTestLease(before, strconv.FormatUint(number, 10))
		h.number, h.hold = number, ipc.HoldTTL
		d.table.Name(&h.Lease)
		d.table.Disconnect(&before.client)
		h.lease, h.Life.State = &redlock.Lease{}, locktable.Held
		d.record(h, func() uint64 {
			h.recording.isGranted = true
			return number
		})
		var wg sync.WaitGroup
		for _, s := range both {
			wg.Go(func() {
				r := &resumeWork{s: s, h: h}
				if err := r.take(); err != nil {
					t.Error(err)
				}
				r.noteTaken()
			})
		}
		wg.Wait()
		has[number] = sessionOf(h.Reporter()).number
	}
	for number, l := range d.recorded(path).Leases {
		if l.Conn != has[number] {
			t.Errorf("lease %d is recorded for connection %d, but %d has it", number, l.Conn, has[number])
		}
	}
}

// While a change of a lease is being recorded, nothing else of it is: otherwise another record could have
// the change without the answer that belongs to it, and a restart would do the request again. An UNLOCK
// would then undo two LOCKs. Guards recording.write.
func TestChangeIsRecordedAlone(t *testing.T) {
	d, _ := journalHost(t)
	h := newTestLease(newTestSession(d), "a")
	h.number, h.lease, h.recording.isGranted = 1, &redlock.Lease{}, true
	d.Journal.Freeze() // now Append blocks
	changed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		d.record(h, func() uint64 {
			close(changed)
			return 0
		})
	}()
	<-changed
	if h.write.TryLock() {
		t.Error("another change can be recorded before the first one is")
	}
	d.Journal.Close()
	<-ended
}
