package redlock_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// TestSearchTwoUnderOneName lets two hosts reach sometimes all nodes and sometimes only some. One
// of them sometimes reaches another Redis under one node's name. Two clients never hold the lock
// at the same time, and fencing tokens grow. Guards compareIncarnations, Lane.writeReports and
// isKnownLongEnough.
func TestSearchTwoUnderOneName(t *testing.T) {
	searchSplit(t, (budget()+24)/25, (*fleet).strays)
}

// TestSearchReplacedNode checks the same while one host after the other starts to reach that
// Redis, and one more fault happens: for example, another node loses its data. Guards
// Fleet.areAllNew.
func TestSearchReplacedNode(t *testing.T) {
	searchSplit(t, (budget()+24)/25, (*fleet).replaces)
}

// searchSplit lets two hosts contend for one lock while change alters which nodes they reach.
func searchSplit(t *testing.T, seeds int, change func(f *fleet, ctx context.Context, random *rand.Rand, here, there *reach)) {
	for seed := range uint64(seeds) {
		here, there := &reach{}, &reach{}
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			there.twin = redlocktest.NewSim("a")
			here.twin = there.twin
			defer there.twin.Close()
			other := f.another(withQuarantine, there.through)
			defer other.Close()
			c := &crowd{TB: t, grow: true}
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			var all sync.WaitGroup
			for _, q := range []*redlock.Quorum{f.q, other} {
				all.Go(func() { c.again(ctx, q, redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever, Keep: true}) })
			}
			change(f, ctx, rand.New(rand.NewPCG(seed, 0)), here, there)
			all.Wait()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}, here.through)
	}
}

// reach holds which nodes a host reaches: all but away (1 is the first; 0: it reaches all). If
// astray is true, the host reaches the twin instead of the first node.
type reach struct {
	away   atomic.Int32
	astray atomic.Bool
	twin   *redlocktest.Sim
}

// through makes a host dial its nodes through r.
func (r *reach) through(o *redlock.Options) {
	for i := range o.Nodes {
		dial := o.Nodes[i].Dial
		o.Nodes[i].Listen = nil
		o.Nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			switch {
			case r.away.Load() == int32(i+1):
				return nil, syscall.EHOSTUNREACH
			case i == 0 && r.astray.Load():
				return r.twin.Node().Dial(ctx)
			}
			return dial(ctx)
		}
	}
}

// strays changes what the two hosts reach until ctx is done.
func (f *fleet) strays(ctx context.Context, random *rand.Rand, here, there *reach) {
	for ctx.Err() == nil {
		switch random.IntN(3) {
		case 0:
			there.astray.Store(!there.astray.Load())
		case 1:
			here.away.Store(int32(random.IntN(4)))
		default:
			there.away.Store(int32(random.IntN(4)))
		}
		there.twin.Cut()
		every(f.sims, (*redlocktest.Sim).Cut)
		time.Sleep(time.Duration(random.IntN(4000)) * ms)
	}
}

// replaces makes one host and then the other reach the other Redis, or the former one again, and
// causes one more fault each time, until ctx is done.
func (f *fleet) replaces(ctx context.Context, random *rand.Rand, here, there *reach) {
	hosts := [2]*reach{here, there}
	for ctx.Err() == nil {
		first := random.IntN(2)
		astray := !hosts[first].astray.Load()
		moves := func(host int) func() {
			return func() { hosts[host].astray.Store(astray) }
		}
		fails := func() {
			switch node := 1 + random.IntN(2); random.IntN(3) {
			case 0:
				f.sims[node].Flush()
			case 1:
				f.sims[node].Restore(f.sims[node].Snapshot())
			default:
				hosts[random.IntN(2)].away.Store(int32(node + 1))
			}
		}
		steps := []func(){moves(first), fails}
		random.Shuffle(2, func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range append(steps, moves(1-first)) {
			step()
			here.twin.Cut()
			every(f.sims, (*redlocktest.Sim).Cut)
			time.Sleep(time.Duration(random.IntN(1200+4800*random.IntN(2))) * ms)
		}
		here.away.Store(0)
		there.away.Store(0)
		time.Sleep(2*longest + 6*beat + time.Duration(random.IntN(1000))*ms)
	}
}

// again acquires and releases a lock until ctx is done. It holds the lock, extended, for as long
// as it may.
func (c *crowd) again(ctx context.Context, q *redlock.Quorum, r redlock.Request) {
	for {
		var once sync.Once
		var l *redlock.Lease
		left := make(chan struct{})
		r.OnLost = func(l *redlock.Lease) { // other clients may get it at the deadline
			time.AfterFunc(l.Validity(), func() { once.Do(func() { close(left) }) })
		}
		l, err := q.Acquire(ctx, r)
		if err != nil {
			return
		}
		c.enter(l, 1)
		select {
		case <-left:
		case <-time.After(2 * longest):
		}
		c.enter(l, -1)
		l.BeginRelease()
	}
}

// If a host does not yet know of a second Redis under a node's name, its leases expire before that
// Redis votes. This holds if the host has just looked at the other nodes, and if those learn of
// the second Redis late. Guards quarantineEnd.
func TestTwinWaitsForUnawareHost(t *testing.T) {
	for name, unaware := range map[string]func(f *fleet, there *reach){
		"looked before": func(*fleet, *reach) { time.Sleep(beat * 8 / 10) },
		"reported late": func(f *fleet, there *reach) {
			there.away.Store(3)
			f.sims[2].Cut()
			time.Sleep(3*longest + 2*beat)
		},
	} {
		here, there := &reach{}, &reach{}
		simTest(t, 3, func(t *testing.T, f *fleet) {
			time.Sleep(3*longest + 2*beat)
			here.away.Store(2)
			f.sims[1].Cut()
			time.Sleep(beat / 10) // the host looks at the other nodes at these times, and the other host later
			other := f.gone(there, thrice)
			defer there.twin.Close()
			defer other.Close()
			unaware(f, there)
			held := f.acquire(redlock.Request{Name: "x", TTL: 3 * longest})
			there.away.Store(0)
			wantAfter(t, name, other, held)
		}, withQuarantine, thrice, here.through)
	}
}

// If another node loses its counters too, a quorum has lost them. Still, the twin waits for a host
// that votes with the former Redis and a third node. Guards Fleet.areAllNew.
func TestTwinWaitsWhenAnotherNodeLostCounters(t *testing.T) {
	here, there := &reach{}, &reach{}
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(beat / 10)
		f.sims[1].Flush()
		other := f.gone(there)
		defer there.twin.Close()
		defer other.Close()
		time.Sleep(beat * 8 / 10) // since the host has looked
		// The host learns of the twin from the node that lost its counters, but not before the others have voted.
		f.sims[1].SetDelay(func() (request, reply time.Duration) { return 0, ms })
		held := f.acquire(redlock.Request{Name: "x", TTL: longest})
		f.sims[0].Hang() // now no host reaches the former Redis
		wantAfter(t, "a node without counters", other, held)
	}, here.through)
}

// If all nodes are new, a host that reaches another Redis under one name, and not all of the
// other nodes, is granted no lock with it. The other hosts are granted locks. Guards
// incarnationRegister.isCutOff.
func TestNewTwinIsDetected(t *testing.T) {
	for after := time.Duration(0); after < 3*beat; after += beat / time.Duration(fewer(8)) {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			there, granted := &reach{}, 0
			there.away.Store(3)
			time.Sleep(after)
			other := f.gone(there)
			defer there.twin.Close()
			defer other.Close()
			for end := f.now() + 2*longest + 4*beat; f.now() < end; time.Sleep(100 * ms) {
				one, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
				if err != nil {
					continue
				}
				if two, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest}); err == nil {
					t.Fatalf("the other host started %v later: both hold the lock, for another %v and %v", after, one.Validity(), two.Validity())
				}
				want(t, "released", one.Release(t.Context()), nil)
				granted++
			}
			want(t, "some locks are granted", granted > 0, true)
		}, withQuarantine)
	}
}

// gone returns another host that reaches a twin of the first node from the beginning.
func (f *fleet) gone(there *reach, change ...func(*redlock.Options)) *redlock.Quorum {
	there.twin = redlocktest.NewSim("a")
	there.astray.Store(true)
	return f.another(append([]func(*redlock.Options){withQuarantine, there.through}, change...)...)
}

// wantAfter makes the other host acquire held's lock, and checks that the grant comes after
// held's deadline.
func wantAfter(t *testing.T, when string, other *redlock.Quorum, held *redlock.Lease) {
	t.Helper()
	l, err := other.Acquire(t.Context(), redlock.Request{Name: held.Name(), TTL: time.Second, Wait: redlock.Forever})
	want(t, when+": error", err, nil)
	if early := held.Deadline() - l.Since(); early > 0 {
		t.Errorf("%s: granted to another host %v before the deadline", when, early)
	}
}

// A host has got no answer from the nodes for long, because a node hangs or the host was stopped.
// It holds a lease only for as long as it may be unaware of a twin. Guards fleet.latest.
func TestUnawareHostHoldsForLess(t *testing.T) {
	here, there, slow := &reach{}, &reach{}, new(atomic.Bool)
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		here.away.Store(3)
		f.sims[2].Cut()
		time.Sleep(beat / 2)
		slow.Store(true)
		time.Sleep(beat * 6 / 10) // the host has just looked, and gets the answer later
		slow.Store(false)
		other := f.gone(there)
		defer there.twin.Close()
		defer other.Close()
		time.Sleep(beat * 23 / 10)
		held := f.acquire(redlock.Request{Name: "x", TTL: longest})
		want(t, "the lease is shorter", held.Validity() < longest/2, true)
		wantAfter(t, "unaware", other, held)
	}, here.through, func(o *redlock.Options) {
		o.NodeTimeout = 4 * beat
		dial := o.Nodes[1].Dial
		o.Nodes[1].Dial = func(ctx context.Context) (redlock.Conn, error) {
			conn, err := dial(ctx)
			return redlocktest.WithDo(conn, slowConn{conn, slow}.Do), err
		}
	})
}

// slowConn delays the answers to questions that were sent while it was slow.
type slowConn struct {
	redlock.Conn
	slow *atomic.Bool
}

func (c slowConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	slow := c.slow.Load()
	err := c.Conn.Do(ctx, group, replies)
	if slow {
		time.Sleep(beat * 5 / 2)
	}
	return err
}

// One hung node does not shorten leases, although its reports are older than the allowed
// staleness. Guards incarnationRegister.isSilentLocked.
func TestHungNodeShortensNoLease(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		kept := f.acquire(redlock.Request{Name: "kept", TTL: longest, Keep: true})
		f.sims[0].Hang()
		for range 3 * beat / (100 * ms) {
			time.Sleep(100 * ms)
			f.release(f.acquire(redlock.Request{Name: "x", TTL: longest}))
		}
		f.wantState(f.q, 0, redlock.NodeDown, "silent for") // its connection is not closed
		want(t, "the kept lease has more than half of its ttl", kept.Validity() > longest/2, true)
		held := f.acquire(redlock.Request{Name: "x", TTL: longest})
		want(t, "validity", held.Validity(), longest-longest/100-2*ms)
	}, func(o *redlock.Options) { o.NodeTimeout = beat })
}

// A host that was suspended knows nothing of a twin that started meanwhile. It looks at the nodes
// soon. Guards keeper.noticeSuspension: LookSoon.
func TestSuspendedHostLooksSoon(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close() // it was not suspended, and would blame the nodes
		var asleep atomic.Int64
		q := f.another(withQuarantine, func(o *redlock.Options) {
			o.Clock = func() time.Duration { return f.now() + time.Duration(asleep.Load()) }
		})
		defer q.Close()
		time.Sleep(beat + 150*ms) // the host has just looked, and no timer of it ends at this instant
		asleep.Add(int64(time.Hour))
		every(f.sims, func(s *redlocktest.Sim) { s.StepClock(time.Hour) })
		_, err := q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
		wantErr(t, "attempt at once", err, redlock.ErrNoQuorum)
		time.Sleep(150 * ms)
		_, err = q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
		want(t, "attempt after 150 ms", err, nil)
	})
}

// A host is stopped before it writes the words of other nodes to a node. Meanwhile other hosts
// report a twin there. When the host continues, it must not overwrite that report. Otherwise the
// node's former incarnation would be accepted again. Guards Lane.rewrite: the words that were
// seen.
func TestStoppedHostOverwritesNoWords(t *testing.T) {
	here, there := &reach{}, &reach{}
	var stop stop
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		stop.before(1, script.Scripts()[1].SHA)
		f.sims[2].StepClock(time.Second) // the host is to report this to the other nodes
		time.Sleep(beat * 16 / 10)
		want(t, "the host is stopped", stop.is.Load(), true)
		other := f.gone(there, slowNodes)
		defer there.twin.Close()
		defer other.Close()
		time.Sleep(2 * longest)
		here.away.Store(3)
		f.sims[2].Cut()
		stop.end()
		time.Sleep(20 * ms)
		_, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
		wantErr(t, "attempt with the former Redis", err, redlock.ErrNoQuorum)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "another Redis has come after this one")
	}, here.through, slowNodes, stop.has)
}

// A restarted node still has the words that hosts wrote to it. A host that sees it for the first
// time reads them before it writes more. Guards reportsFor.
func TestRestartedNodeKeepsWords(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		written := "a=" + redlock.LaterWord(f.sims[0].Do("HGET", nodeKey, "epoch").Str)
		f.sims[1].Do("HSET", nodeKey, "words", written)
		f.sims[1].Restore(f.sims[1].Snapshot())
		f.sims[1].SetDelay(func() (request, reply time.Duration) { return 0, 20 * ms }) // the other nodes are seen first
		later := f.another(withQuarantine)
		defer later.Close()
		time.Sleep(beat / 4)
		f.wantState(later, 1, redlock.NodeQuarantined)
		want(t, "more words were written to it", strings.Contains(f.sims[1].Do("HGET", nodeKey, "words").Str, "c="), true)
		want(t, "it still has its words", strings.Contains(f.sims[1].Do("HGET", nodeKey, "words").Str, written), true)
	})
}

// If another host has just written to a node, a report to it comes too late. The host then looks
// again at once, because a quarantine lasts until other hosts know of it. Guards Lane.verify.
func TestLateReportsAreRepeatedAtOnce(t *testing.T) {
	var stop stop
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		stop.before(1, script.Scripts()[1].SHA)
		f.sims[2].StepClock(time.Second) // the host is to report this to the other nodes
		for !stop.is.Load() {
			time.Sleep(ms)
		}
		f.sims[1].Do("HDEL", nodeKey, "words")
		stop.end()
		time.Sleep(ms)
		want(t, "the node has the words", strings.Contains(f.sims[1].Do("HGET", nodeKey, "words").Str, "c="), true)
	}, stop.has)
}

// slowNodes makes a host wait for nodes that do not answer for seconds.
func slowNodes(o *redlock.Options) { o.NodeTimeout = 2 * beat }

// stop makes a host send nothing, as if its process were stopped.
type stop struct {
	node   int
	script string
	armed  atomic.Bool
	is     atomic.Bool
	ended  chan struct{}
}

// before stops the host when it is about to make node run script.
func (s *stop) before(node int, script string) {
	s.node, s.script, s.ended = node, script, make(chan struct{})
	s.armed.Store(true)
}

// end lets the host continue.
func (s *stop) end() {
	s.is.Store(false)
	close(s.ended)
}

// has makes a host stop when s says so.
func (s *stop) has(o *redlock.Options) {
	for i := range o.Nodes {
		wrapConns(&o.Nodes[i], func(c redlock.Conn) redlock.Conn { return redlocktest.WithDo(c, stoppedConn{c, s, i}.Do) })
	}
}

// stoppedConn is a connection of such a host.
type stoppedConn struct {
	redlock.Conn
	stop *stop
	node int
}

func (c stoppedConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	s := c.stop
	if s.armed.Load() && c.node == s.node && len(group[0]) > 1 && group[0][1] == s.script {
		s.armed.Store(false)
		s.is.Store(true)
	}
	if s.is.Load() {
		<-s.ended
	}
	return c.Conn.Do(ctx, group, replies)
}

// crowd tracks the clients in a critical section.
type crowd struct {
	testing.TB
	grow bool // fencing tokens only grow

	mu      sync.Mutex // guards what follows
	writers int
	readers int
	slots   map[int]bool
	most    int // at the same time
	fence   uint64
}

func (c *crowd) enter(l *redlock.Lease, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.Slot() > 0:
		c.take(l, by)
	case l.Shared():
		c.readers += by
	default:
		c.writers += by
	}
	if c.writers > 1 || c.writers == 1 && c.readers > 0 {
		c.Errorf("%d writers and %d readers of %s at the same time", c.writers, c.readers, l.Name())
	}
	if by > 0 && c.grow && l.Fence() <= c.fence {
		c.Errorf("%s: fencing token %d after %d", l.Name(), l.Fence(), c.fence)
	}
	c.most, c.fence = max(c.most, c.writers+c.readers+len(c.slots)), l.Fence()
}

// take records a slot. The caller holds mu.
func (c *crowd) take(l *redlock.Lease, by int) {
	if by > 0 && c.slots[l.Slot()] {
		c.Errorf("slot %d of %s is taken twice", l.Slot(), l.Name())
	}
	if by > 0 {
		c.slots[l.Slot()] = true
	} else {
		delete(c.slots, l.Slot())
	}
}
