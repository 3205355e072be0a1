package daemon

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// TestRow: others are let go first when a row was long enough, and where nobody said
// that he waits only after a much longer one.
func TestRow(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		row          row
		granted, now time.Duration
		wanted       bool
		want         row
	}{
		{row{}, 1000 * ms, 1001 * ms, true, row{n: 1, since: 1000 * ms}},
		{row{n: 1, since: 1000 * ms}, 1090 * ms, 1099 * ms, true, row{n: 2, since: 1000 * ms}},
		{row{n: 1, since: 1000 * ms}, 1090 * ms, 1100 * ms, true, row{yields: true}},
		{row{n: 1, since: 1000 * ms}, 1090 * ms, 1999 * ms, false, row{n: 2, since: 1000 * ms}},
		{row{n: 1, since: 1000 * ms}, 1090 * ms, 2000 * ms, false, row{yields: true}},
		{row{n: 14, since: 1000 * ms}, 1014 * ms, 1015 * ms, true, row{n: 15, since: 1000 * ms}},
		{row{n: 15, since: 1000 * ms}, 1015 * ms, 1016 * ms, true, row{yields: true}},
		{row{n: 15, since: 1000 * ms}, 1015 * ms, 1016 * ms, false, row{n: 16, since: 1000 * ms}},
		{row{yields: true}, 2000 * ms, 2001 * ms, true, row{n: 1, since: 2000 * ms}},
	} {
		if got := test.row.after(test.granted, test.wanted, test.now); got != test.want {
			t.Errorf("%+v after a grant at %v, now %v, wanted %v: %+v, want %+v", test.row, test.granted, test.now, test.wanted, got, test.want)
		}
	}
}

// TestQueuePromises: to whom a lock is handed over.
func TestQueuePromises(t *testing.T) {
	for _, test := range []struct {
		name   string
		holder *place
		line   []*place // behind it
		want   int      // index in line; -1: nobody
	}{
		{"the next", newPlace("a"), []*place{newPlace("a"), newPlace("a")}, 0},
		{"the same names", newPlace("a", "b"), []*place{newPlace("a", "b")}, 0},
		{"nobody is there", newPlace("a"), nil, -1},
		{"more names", newPlace("a"), []*place{newPlace("a", "b"), newPlace("a")}, -1},
		{"fewer names", newPlace("a", "b"), []*place{newPlace("a")}, -1},
		{"names in another order", newPlace("a", "b"), []*place{newPlace("b", "a")}, -1},
		{"somebody between in one line", newPlace("a", "b"), []*place{newPlace("b"), newPlace("a", "b")}, -1},
		{"somebody between in the other one", newPlace("a", "b"), []*place{newPlace("a"), newPlace("a", "b")}, -1},
		{"a reader", newPlace("a"), []*place{newKindPlace(reader, "a")}, -1},
		{"of a reader", newKindPlace(reader, "a"), []*place{newPlace("a")}, -1},
		{"of a slot", newKindPlace(kind{slots: 2}, "a"), []*place{newPlace("a")}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := newQueue()
			q.join(test.holder)
			for i, p := range test.line {
				p.patient, p.owner = true, owner{name: fmt.Sprint(i)}
				q.join(p)
			}
			got := q.promise(test.holder, row{n: 7})
			if slices.Index(test.line, got) != test.want {
				t.Fatalf("promised to place %d, want %d", slices.Index(test.line, got), test.want)
			}
			if got != nil && got.row.n != 7 {
				t.Errorf("it goes on with the row %+v", got.row)
			}
			if again := q.promise(test.holder, row{}); again != nil {
				t.Error("promised twice")
			}
		})
	}
}

// handOverPlay is a hand-over step by step: a holder that gives back, one that
// waits, and one behind it.
type handOverPlay struct {
	q                    *queue
	holder, next, behind *place
	begun                *redlock.Begun
	owners               []string // who had to do with begun
	called               bool     // behind was, before begun had an owner
}

func newHandOverPlay() *handOverPlay {
	play := &handOverPlay{q: newQueue(), holder: newPlace("a"), next: newPlace("a"), behind: newPlace("a"), begun: &redlock.Begun{}}
	for i, p := range []*place{play.holder, play.next, play.behind} {
		p.patient, p.owner = true, owner{name: fmt.Sprint(i)}
		play.q.join(p)
	}
	return play
}

func (play *handOverPlay) owned(by string) {
	play.owners = append(play.owners, by)
	play.called = play.called || isCalled(play.behind)
}

// giver is what the goroutine that gives back does.
func (play *handOverPlay) giver() []func() {
	var promised *place
	return []func(){
		func() { promised = play.q.promise(play.holder, row{}) },
		func() {
			if promised != nil && !play.q.deliver(promised, play.begun) {
				play.owned("the giver")
			}
		},
		func() { play.q.leave(play.holder, nil) },
	}
}

// quitter is a waiter that gives up.
func (play *handOverPlay) quitter() []func() {
	return []func(){
		func() {
			if play.q.withdraw(play.next) != nil {
				play.owned("who gave up")
			}
		},
		func() { play.q.leave(play.next, nil) },
	}
}

// interleavings calls play with every order in which a steps of one and b steps
// of another can come: true is the one's.
func interleavings(a, b int, order []bool, play func([]bool)) {
	if a+b == 0 {
		play(order)
	}
	if a > 0 {
		interleavings(a-1, b, append(slices.Clip(order), true), play)
	}
	if b > 0 {
		interleavings(a, b-1, append(slices.Clip(order), false), play)
	}
}

// TestBegunHasOneOwner: however a waiter that gives up and one that hands over to
// it meet, what was begun is abandoned once, and whoever stands behind is called
// after that, not before.
func TestBegunHasOneOwner(t *testing.T) {
	both := map[string]int{}
	interleavings(3, 2, nil, func(order []bool) {
		play := newHandOverPlay()
		giver, quitter := play.giver(), play.quitter()
		for _, gives := range order {
			steps := &quitter
			if gives {
				steps = &giver
			}
			(*steps)[0]()
			*steps = (*steps)[1:]
		}
		want := 0
		if order[0] { // or else it gave up before anything was begun for it
			want = 1
		}
		if len(play.owners) != want || play.called {
			t.Errorf("order %v: owned by %v, want %d; the one behind was called before that: %v", order, play.owners, want, play.called)
		}
		if begun, _ := play.q.take(play.next); begun != nil {
			t.Errorf("order %v: it can still be taken", order)
		}
		if !isCalled(play.behind) {
			t.Errorf("order %v: the one behind is not called", order)
		}
		for _, who := range play.owners {
			both[who]++
		}
	})
	if both["the giver"] == 0 || both["who gave up"] == 0 {
		t.Errorf("owners were %v: one of the ways was not tried", both)
	}
}

// TestBegunIsTakenOnce by who waits for its turn.
func TestBegunIsTakenOnce(t *testing.T) {
	play := newHandOverPlay()
	for _, step := range play.giver() {
		if isCalled(play.next) {
			break
		}
		step()
	}
	play.q.leave(play.holder, nil)
	if begun, _ := play.q.take(play.next); begun != play.begun {
		t.Fatal("it is not there")
	}
	if begun, _ := play.q.take(play.next); begun != nil {
		t.Error("it is taken twice")
	}
	if play.q.withdraw(play.next) != nil {
		t.Error("it is taken, and abandoned")
	}
	if isCalled(play.behind) {
		t.Error("the one behind is called, too")
	}
}

// TestPromiseTakenBack: the lease that was to be handed over was lost, and its
// place is kept until its deadline, or is gone already.
func TestPromiseTakenBack(t *testing.T) {
	for _, gone := range []bool{false, true} {
		play := newHandOverPlay()
		q, next := play.q, play.q.promise(play.holder, row{})
		if gone {
			q.leave(play.holder, nil)
		}
		q.takeBack(next)
		if isCalled(next) != gone {
			t.Errorf("the one before it is gone: %v; it is called: %v", gone, isCalled(next))
		}
		q.leave(play.holder, nil)
		if !isCalled(next) || isCalled(play.behind) {
			t.Errorf("at the end it is called: %v, the one behind: %v; want it alone", isCalled(next), isCalled(play.behind))
		}
	}
}

// TestHandOver: from one to the next in one go, for UNLOCK and for the death of a
// client, with a fencing token of its own each.
func TestHandOver(t *testing.T) {
	for _, names := range []string{"a", "a,b"} {
		t.Run(names, func(t *testing.T) {
			d := startDaemon(t, 3, patientNodes)
			a, b, c, look := d.dial(), d.dial(), d.dial(), d.dial()
			const grant = `OK lock=\S+ lease=\S+ fence=(\d+) ttl=\d+ deadline=\d+`
			first := a.say("LOCK "+names, grant)[0]
			b.waits(look, "LOCK "+names, 1)
			c.waits(look, "LOCK "+names+" hold=ttl", 2)
			a.say("UNLOCK "+names, `OK lock=`+names)
			second := b.want(grant)[0]
			b.conn.Close()
			third := c.want(grant)[0]
			look.until("STATUS", `grants=3\b.*handovers=2\b`)
			if !(first < second && second < third) { // 16 digits each
				t.Errorf("fencing tokens %s, %s, %s: want them to grow", first, second, third)
			}
			c.say("UNLOCK "+names, `OK lock=`+names)
			look.until("STATUS", `handovers=2\b`)
			eventually(t, "no keys are left", func() bool { return len(d.keys()) == 0 })
		})
	}
}

// TestHandOverToWhoGivesUp: waiters that give up in every way, at every moment,
// leave nothing on the nodes, and the lock goes on to the next.
func TestHandOverToWhoGivesUp(t *testing.T) {
	const clients, rounds = 8, 60
	d := startDaemon(t, 3, patientNodes)
	var inside atomic.Int32
	var grants atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			w := d.dial()
			for range rounds {
				if w == nil {
					w = d.dial()
				}
				w = givesUpOrHolds(w, random, &inside, &grants)
			}
		})
	}
	wg.Wait()
	if grants.Load() < rounds/4 {
		t.Errorf("%d grants: too few to tell", grants.Load())
	}
	look := d.dial()
	look.until("STATUS", `handovers=[1-9]`)
	look.until("STATUS", `waiters=0\b`)
	look.say("LOCK a wait=5s", granted5) // sooner than anything left behind is over
	look.say("UNLOCK a", `OK lock=a`)
	eventually(t, "no keys are left", func() bool { return len(d.keys()) == 0 })
}

// givesUpOrHolds asks for the lock, for 30 s if it is left behind. It returns the
// connection, nil if that is closed.
func givesUpOrHolds(w *wire, random *rand.Rand, inside *atomic.Int32, grants *atomic.Int64) *wire {
	wait, pings := 1+random.IntN(8), random.IntN(3)
	switch random.IntN(4) {
	case 0: // CANCEL, some time
		w.send("@1 LOCK a ttl=30s%s\n@2 CANCEL 1", strings.Repeat("\n@3 PING", pings))
	case 1: // the connection ends, some time
		w.send("@1 LOCK a ttl=30s%s", strings.Repeat("\n@3 PING", pings))
		w.conn.Close()
		return nil
	default:
		w.send("@1 LOCK a ttl=30s wait=%d%s\n@2 PING", wait, strings.Repeat("\n@3 PING", pings))
	}
	granted := false
	for range 2 + pings {
		if line := w.line(); strings.HasPrefix(line, "@1 OK") {
			granted = true
			if inside.Add(1) != 1 {
				w.t.Error("two hold it")
			}
		}
	}
	if granted {
		grants.Add(1)
		inside.Add(-1)
		w.say("UNLOCK a", `OK lock=a`)
	}
	return w
}

// TestOtherHostsGetTheirTurn: the clients of one host hand a lock on among
// themselves without end, and one of another host gets it all the same.
func TestOtherHostsGetTheirTurn(t *testing.T) {
	for _, kind := range []struct{ name, options, other string }{
		{"a", "", ""}, {"a,b", "", ""}, {"a", " slots=2", " slots=2"}, {"a", " mode=shared", ""}, {"a", "", " mode=shared"},
	} {
		t.Run(kind.name+kind.options+" and"+kind.other, func(t *testing.T) {
			const turns = 10
			here := startDaemon(t, 3, patientNodes)
			there := here.another()
			var stop atomic.Bool
			var wg sync.WaitGroup
			for range 6 {
				w := here.dial()
				wg.Go(func() {
					for !stop.Load() {
						w.say("LOCK "+kind.name+kind.options, `OK .*`)
						w.say("UNLOCK "+kind.name, `OK .*`)
					}
				})
			}
			defer wg.Wait()
			defer stop.Store(true)
			other := there.dial()
			for range turns {
				other.say("LOCK "+kind.name+kind.other+" wait=15s", `OK .*`)
				other.say("UNLOCK "+kind.name, `OK .*`)
			}
		})
	}
}

// TestBegunIsAbandonedByWhoLeaves: the grant was begun for one who has just given
// up. The lock is free for the next attempt at once.
func TestBegunIsAbandonedByWhoLeaves(t *testing.T) {
	cfg := config.Dev()
	e, nodes, err := startEmbedded(&cfg.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	d, err := newDaemon(cfg, hclog.NewNullLogger(), nodes, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.nodes.Close()
	d.settle(t.Context())
	s := &session{d: d, inputEnded: make(chan struct{})}
	first, second := enter(t, s, "first"), enter(t, s, "second")
	err = first.acquire(t.Context())
	if first.leave(err); err != nil {
		t.Fatal(err)
	}
	if _, err := d.release(first.holding, 0); err != nil {
		t.Fatal(err)
	}
	if counts := d.nodes.Status().Counts; counts.HandOvers != 1 || second.place.begun == nil {
		t.Fatalf("%d hand-overs; begun is %v", counts.HandOvers, second.place.begun)
	}
	second.leave(errInputEnded)
	lease, err := d.nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: time.Second})
	if err != nil {
		t.Fatalf("what was begun is still there: %v", err)
	}
	lease.Release(t.Context())
}

// enter is a LOCK that was read, and waits for its turn where that has not come.
func enter(t *testing.T, s *session, owner string) *ask {
	t.Helper()
	call := &server.Call{Request: ipc.Request{Verb: ipc.VerbLock, Names: []string{"a"}, Options: ipc.Options{Owner: owner}}}
	a, err := s.newAsk(call)
	if err == nil {
		_, err = s.enter(a)
	}
	if err == nil {
		err = s.d.queue.join(&a.place)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A lease is lost, and then unlocked: it cannot be handed over, but who comes next has
// the lock all the same when its deadline is over, and those behind after that.
func TestNextAfterALostLease(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, patientNodes)
	w, next, behind, look := d.dial(), d.dial(), d.dial(), d.dial()
	deadline := duration(t, w.say("LOCK a hold=ttl ttl=2s", granted5)[2])
	next.waits(look, "LOCK a", 1)
	behind.waits(look, "LOCK a", 2)
	w.want(`LOST lock=a .*`)
	w.say("UNLOCK a", `ERR LOST .*`)
	next.want(granted5)
	if now := redlock.BootTime(); now < deadline {
		t.Errorf("granted at %v, before the deadline %v", now, deadline)
	}
	next.say("UNLOCK a", `OK lock=a`)
	behind.want(granted5)
}
