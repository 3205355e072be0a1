package daemon

import (
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// noting is a daemon that does nothing but note.
func noting(t *testing.T) (d *daemon, path string) {
	t.Helper()
	path = filepath.Join(shortDir(t), "s")
	d = &daemon{cfg: config.Dev(), log: hclog.NewNullLogger(), clock: redlock.BootTime, limits: newLimits(config.Limits{})}
	if d.openLedger(path); d.ledger == nil {
		t.Skip("the table needs Linux")
	}
	d.store = &store{d: d, wake: make(chan struct{}, 1), stored: map[*session]struct{}{}, places: 10}
	return d, path
}

// connection is one with a session, from which nothing is read.
func (d *daemon) connection(t *testing.T) *session {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(shortDir(t), "l"))
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

// noted is what the next daemon finds.
func (d *daemon) noted(path string) *past {
	d.ledger.leave()
	next := &daemon{cfg: d.cfg, log: d.log}
	p, _ := next.openLedger(path)
	next.ledger.leave()
	return p
}

// A connection may come to its end while it is being stored: what is noted of it then
// must not seem to be a connection that was stored, and that its client has ended.
func TestStoringWhatEnds(t *testing.T) {
	d, path := noting(t)
	over, ending, cut, kept := d.connection(t), d.connection(t), d.connection(t), d.connection(t)
	for _, s := range []*session{over, ending, cut, kept} {
		d.store.stored[s] = struct{}{}
	}
	d.ended(over)
	if ending.stored.settle() {
		t.Error("a connection that is not stored is kept")
	}
	cut.stored.end()
	for _, s := range []*session{over, ending, cut, kept} {
		d.store.keep(s)
	}
	if !kept.stored.settle() {
		t.Error("a connection that is stored is not kept")
	}
	if d.store.idle() != nil {
		t.Error("a connection makes way that is kept for the next daemon")
	}
	p := d.noted(path)
	if p.conns[over.number] != nil {
		t.Error("a connection that is over is noted again")
	}
	for s, want := range map[*session]bool{ending: false, cut: false, kept: true} {
		if got := p.conns[s.number]; got == nil || got.stored != want {
			t.Errorf("connection %d: got %+v, want it stored: %v", s.number, got, want)
		}
	}
}

// A connection that ends is not looked for among those that are still to be stored, and
// those behind it come in their order.
func TestStoreQueue(t *testing.T) {
	d, _ := noting(t)
	st := d.store
	st.places = 2
	all := make([]*session, 5)
	for i := range all {
		all[i] = d.connection(t)
	}
	d.ended(all[1])
	for _, want := range []*session{all[0], all[2]} {
		if s, out, _ := st.next(d.clock() + storeAge); s != want || out != nil {
			t.Fatalf("got connection %v in the place of %v, want %d in a free one", s, out, want.number)
		}
	}
	<-st.wake
	if s, _, _ := st.next(d.clock() + storeAge); s != nil {
		t.Fatalf("connection %d is to be stored, and there is no room", s.number)
	}
	d.ended(all[3]) // was not stored: no room
	if len(st.wake) != 0 {
		t.Error("somebody is to look whether there is room, and nothing has changed")
	}
	d.ended(all[0])
	if s, _, _ := st.next(d.clock() + storeAge); s != all[4] || len(st.wake) != 1 {
		t.Errorf("got %v, want connection %d, and somebody told", s, all[4].number)
	}
}

// Who holds something does not get the place of a connection that comes to its end just
// then, which the manager may have still: it gets it when that is over.
func TestStoreInThePlaceOfWhatEnds(t *testing.T) {
	d, path := noting(t)
	st := d.store
	st.places = 1
	ending, holder := d.connection(t), d.connection(t)
	st.storeAll(d.clock() + storeAge)
	d.unkept(ending.conn)
	holder.note(&holding{})
	if next := st.storeAll(d.clock() + storeAge); next == 0 || holder.stored.now() {
		t.Errorf("the next look is in %v, and it is stored: %v; want neither at once", next, holder.stored.now())
	}
	d.ended(ending)
	st.storeAll(d.clock() + storeAge)
	if p := d.noted(path); !p.conns[holder.number].stored {
		t.Error("it is never stored")
	}
}

// The connections of before a restart have their places with the manager: another one gets
// what is left, as that drops what is too much without a word.
func TestStoreCountsThoseOfBefore(t *testing.T) {
	d, _ := noting(t)
	st := d.store
	st.places = 1
	d.restoring = 7
	before := d.connection(t)
	d.restoring = 0
	after := d.connection(t)
	if s, _, _ := st.next(d.clock() + storeAge); s != nil {
		t.Fatalf("connection %d is to be stored, and there is no room", s.number)
	}
	if !before.stored.settle() {
		t.Error("the connection of before is not kept for the next restart")
	}
	d.ended(before)
	if s, _, _ := st.next(d.clock() + storeAge); s != after {
		t.Errorf("got %v, want connection %d, for which there is room now", s, after.number)
	}
}

// Who resumes a lease gets the place of a connection that holds nothing, at once.
func TestStoreWhatResumes(t *testing.T) {
	d, path := noting(t)
	st := d.store
	st.places = 1
	idle, next := d.connection(t), d.connection(t)
	st.storeAll(d.clock() + storeAge)
	<-st.wake
	h := &holding{}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	next.desk.add(h)
	d.resumed(next, &server.Call{}, h)
	select {
	case <-st.wake:
	default:
		t.Error("nobody is told that it wants to be stored")
	}
	st.storeAll(d.clock() + storeAge)
	if p := d.noted(path); !p.conns[next.number].stored || p.conns[idle.number].stored {
		t.Errorf("stored: %v, and the idle one %v", p.conns[next.number].stored, p.conns[idle.number].stored)
	}
}

// Of two that resume a lease at once, the one who has it is noted, also where no quorum
// confirms it to either: the lease would end with the other's connection.
func TestTwoResumeAtOnceIsNoted(t *testing.T) {
	d, path := noting(t)
	d.queue = waitqueue.New()
	both := [2]*session{d.connection(t), d.connection(t)}
	has := map[uint64]uint64{}
	for number := uint64(10); number < 3000; number++ {
		h := &holding{number: number, first: &desk{}, hold: ipc.HoldTTL}
		h.waiter.Init([]string{strconv.FormatUint(number, 10)}, waitqueue.Kind{}, false, &h.Requester, nil)
		h.first.add(h)
		d.ledger.lease(recHeld, &pastLease{number: number, phase: phaseHeld})
		var wg sync.WaitGroup
		for _, s := range both {
			wg.Go(func() {
				r := &resume{s: s, h: h}
				if err := r.take(); err != nil {
					t.Error(err)
				}
				r.noteTaken()
			})
		}
		wg.Wait()
		has[number] = h.attached().number
	}
	for number, l := range d.noted(path).leases {
		if l.conn != has[number] {
			t.Errorf("lease %d is noted as that of connection %d, and %d has it", number, l.conn, has[number])
		}
	}
}
