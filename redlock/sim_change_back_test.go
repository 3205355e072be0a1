package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node that missed the commit of the change in which it left serves the earlier list. That does not
// show that a change back to this list is done: a host that has slept, or that has this list too early, gets
// no lock while another host holds it. Guards change.complete, change.admits.
func TestNodeThatMissedTheCommitShowsNothing(t *testing.T) {
	for _, all := range []string{"abc", "abcd"} {
		t.Run(all+" before the others join", func(t *testing.T) { missedTheCommit(t, all, false) })
		t.Run(all+" after the others have joined", func(t *testing.T) { missedTheCommit(t, all, true) })
	}
}

func missedTheCommit(t *testing.T, all string, joined bool) {
	synctest.Test(t, func(t *testing.T) {
		last := all[len(all)-1:]
		f := newFleet(t, len(all))
		defer f.closeSims()
		joint := f.another(f.config(all, last))
		f.awaitStep(joint, redlock.ChangeBegun)
		f.sims[1].Down()
		time.Sleep(beat)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		one := f.another(f.config(last, last))
		defer one.Close()
		for ; one.Status().Ready < 1; time.Sleep(100 * ms) {
		}
		f.sims[1].Up()
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		back := f.another(f.config(last, all))
		defer back.Close()
		for ; joined && back.Status().Ready < 3; time.Sleep(100 * ms) {
		}
		for range 30 {
			r := redlock.Request{Name: "x", TTL: longest, Keep: true}
			held, err := one.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			slept := f.another(f.config(all, all))
			r.Wait = time.Second
			if got, err := slept.Acquire(t.Context(), r); err == nil && held.Validity() > 0 {
				t.Fatalf("%v is granted while another host holds the lock", got.Fence())
			}
			want(t, "the lock of the host with the list in use is lost", held.Err(), nil)
			slept.Close()
			held.BeginRelease()
			time.Sleep(100 * ms)
		}
	})
}

// A change is done also if max_ttl is shorter than the time between two looks at a node. Guards change.evidenceLocked.
func TestChangeWithShortMaxTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		half := func(int) time.Duration { return ms }
		f.delay(half, half)
		joint := f.another(f.config("a", "abc"), func(o *redlock.Options) { o.MaxTTL = 500 * ms })
		defer joint.Close()
		time.Sleep(time.Minute)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, "step", joint.Status().Change.Step, redlock.ChangeDone)
	})
}

// One of three new nodes missed the end of a change, and another one loses its data before it is back. The third one
// shows that the new list is in use. So the first one serves it, and then there are enough to admit the second. Guards
// change.complete.
func TestMissedTheEndBesideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.closeSims()
		joint := f.another(f.config("e", "abc"))
		f.awaitStep(joint, redlock.ChangeBegun)
		f.sims[0].Down()
		time.Sleep(2 * beat)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		one := f.another(f.config("abc", "abc"))
		defer one.Close()
		for ; one.Status().Ready < 2; time.Sleep(100 * ms) {
		}
		f.sims[1].Flush()
		time.Sleep(beat)
		f.sims[0].Up()
		time.Sleep(4 * longest)
		want(t, "nodes that are ready for the new list", one.Status().Ready, 3)
	})
}

// Durable nodes that left are restarted with their data. They still refuse a host that slept with the earlier
// list, and are not new nodes for it. Guards judgement.judgeRestarted.
func TestDurableNodesThatLeftStillRefuse(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		joint := f.another(f.config("abc", "c"), durableNodes)
		f.awaitStep(joint, redlock.ChangeBegun)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		every(f.sims[:2], func(s *redlocktest.Sim) { s.Crash(true); s.Restart() })
		slept := f.another(f.config("abc", "abc"), durableNodes)
		defer slept.Close()
		for range 2 {
			time.Sleep(longest + 2*beat)
			f.wantState(slept, 0, redlock.NodeRefused, "has the old list")
			f.wantState(slept, 1, redlock.NodeRefused, "has the old list")
		}
	})
}

// replaced makes a change from a, b, c to d on other hosts, and ends these. The nodes keep their data, or lose it.
func (f *fleet) replaced(end func(*redlocktest.Sim)) {
	f.Helper()
	joint := f.another(f.config("abc", "d"))
	f.awaitStep(joint, redlock.ChangeBegun)
	if err := redlock.CommitUnchecked(joint); err != nil {
		f.Fatal(err)
	}
	f.awaitStep(joint, redlock.ChangeDone)
	time.Sleep(2 * beat)
	joint.Close()
	every(f.sims[:3], end)
}

// A host that nodes refused because its list was replaced, also before a restart, or that sees what restarted nodes had, does not take them for
// new ones, also after an ADMIT: other hosts hold locks on d. Guards change.isReplaced, judgement.judgeRestarted.
func TestReplacedListIsNotNew(t *testing.T) {
	for what, end := range map[string]func(*redlocktest.Sim){
		"refused, then the data is lost": (*redlocktest.Sim).Flush,
		"refused before a restart here":  (*redlocktest.Sim).Flush,
		"the nodes were restarted":       func(s *redlocktest.Sim) { s.Crash(true); s.Restart() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				defer f.closeSims()
				start := func() *redlock.Quorum { return f.another(f.config("abc", "abc")) }
				old := start()
				f.replaced(func(*redlocktest.Sim) {})
				f.wantState(old, 0, redlock.NodeRefused, "has the old list")
				remembered := old.ReplacedList()
				if what != "refused, then the data is lost" {
					old.Close()
				}
				every(f.sims[:3], end)
				if what != "refused, then the data is lost" {
					old = start()
				}
				if what == "refused before a restart here" {
					old.NoteReplacedList(remembered)
				}
				defer old.Close()
				for range 2 {
					time.Sleep(longest + 3*beat)
					for node := range 3 {
						f.wantState(old, node, redlock.NodeQuarantined, "its list of nodes was replaced")
					}
					wantErr(t, "ADMIT", old.Admit(t.Context(), "b"), redlock.ErrNotAdmitted)
				}
			})
		})
	}
}

// A host that heard of no node for longer than max_ttl does not take two nodes for new ones while the third one has not
// answered: that one may refuse it. Guards Fleet.noteHeard.
func TestUnheardNode(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 4)
			defer f.closeSims()
			old := f.another(f.config("abc", "abc"))
			defer old.Close()
			for ; old.Status().Ready < 3; time.Sleep(beat) {
			}
			every(f.sims[:3], (*redlocktest.Sim).Down)
			time.Sleep(longest + 2*beat)
			if refuses {
				f.sims[2].Do("HSET", nodeKey, "epoch", refusing(f.sims[2]))
			}
			every(f.sims[:2], func(s *redlocktest.Sim) { s.Flush(); s.Up() })
			time.Sleep(3 * longest)
			f.wantState(old, 0, redlock.NodeQuarantined, "heard of no node for longer than max_ttl, and c did not answer")
			f.sims[2].Up()
			time.Sleep(3 * longest)
			if refuses {
				f.wantState(old, 0, redlock.NodeQuarantined, "its list of nodes was replaced")
			}
			want(t, "ready when the third node has answered", old.Status().Ready, map[bool]int{false: 3}[refuses])
		})
	}
}

// refusing returns the epoch of a node with a committed change in place of the list that it has.
func refusing(s *redlocktest.Sim) string {
	epoch := s.Do("HGET", nodeKey, "epoch").Str
	list := strings.Split(epoch, ":")[4]
	return strings.Replace(epoch, list, list+">1-0>committed", 1)
}

// A host with both lists was away while the nodes were changed there and back. It does not begin its change again, and
// commits nothing. Guards change.isOverLocked, Fleet.CanCommit.
func TestChangeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		defer f.closeSims()
		var g gate
		joint := f.another(f.config("abc", "abd"), func(o *redlock.Options) { o.Host = "away"; g.close(o) })
		defer joint.Close()
		f.awaitStep(joint, redlock.ChangeBegun)
		g.away.Store(true)
		for _, l := range []lists{{"abc", "abd"}, {"abd", "abc"}} {
			other := f.another(f.config(l.before, l.after))
			f.awaitStep(other, redlock.ChangeBegun)
			if err := redlock.CommitUnchecked(other); err != nil {
				t.Fatal(err)
			}
			f.awaitStep(other, redlock.ChangeDone)
			time.Sleep(5 * beat)
			other.Close()
		}
		back := f.another(f.config("abc", "abc"))
		defer back.Close()
		for ; back.Status().Ready < 3; time.Sleep(beat) {
		}
		g.away.Store(false)
		time.Sleep(3 * longest)
		err := joint.CommitChange(t.Context())
		wantErr(t, "commit", err, redlock.ErrChange)
		wantText(t, err.Error(), "were changed back since")
		want(t, "over", joint.Status().Change.Over, true)
		want(t, "nodes that are ready for the hosts with the list in use", back.Status().Ready, 3)
	})
}

// longestStop is for how long a gate stops its host at most.
const longestStop = 20 * time.Second

// gate is between a host and all nodes.
type gate struct {
	away   atomic.Bool  // all connections fail
	random *rand.Rand   // stops the host before some writes of an epoch; nil: before none
	woken  atomic.Int32 // how often the host was woken
	mu     sync.Mutex   // guards random
}

// close puts the gate before the nodes of a host.
func (g *gate) close(o *redlock.Options) {
	for i := range o.Nodes {
		dial := o.Nodes[i].Dial
		o.Nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			if g.away.Load() {
				return nil, errAway
			}
			conn, err := dial(ctx)
			return &gatedConn{Conn: conn, gate: g}, err
		}
	}
}

var errAway = errors.New("the host is away")

// open lets the host pass from now on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.random = nil
	g.away.Store(false)
}

// stop returns for how long the host is stopped before a write of an epoch.
func (g *gate) stop() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.random == nil || g.random.IntN(8) > 0 {
		return 0
	}
	return time.Duration(g.random.Int64N(int64(longestStop)))
}

// gatedConn is a connection through a gate.
type gatedConn struct {
	redlock.Conn
	gate   *gate
	closed atomic.Bool
}

func (c *gatedConn) Close() {
	c.closed.Store(true)
	c.Conn.Close()
}

func (c *gatedConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	if len(group[0]) > 4 && group[0][0] == "EVALSHA" && group[0][3] == nodeKey {
		if left := c.gate.stop(); left > 0 {
			for woken := c.gate.woken.Load(); left > 0 && !c.closed.Load() && woken == c.gate.woken.Load(); left -= beat {
				time.Sleep(beat)
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), beat) // the packet is sent nevertheless
			defer cancel()
		}
	}
	if c.gate.away.Load() {
		return errAway
	}
	return c.Conn.Do(ctx, group, replies)
}

func (c *gatedConn) Send(ctx context.Context, group []redlock.Command) error {
	if c.gate.away.Load() {
		return errAway
	}
	return c.Conn.Send(ctx, group)
}

// searchBack makes changes there, back and there again. One host is stopped meanwhile, wakes at any time with the list
// that it had, and is stopped between a look at a node and a write for up to 20 seconds.
func searchBack(t *testing.T, l lists, seed uint64) (problems, trace []string) {
	return changeTest(t, l, seed, func(f *fleet, hosts []*rolledHost, random *rand.Rand) {
		ctx, stop := context.WithCancel(f.Context())
		var faults sync.WaitGroup
		faults.Go(func() { f.chaos(ctx, l, rand.New(rand.NewPCG(seed, 2)), 3*longestStop) })
		gates := make([]gate, len(hosts))
		for i := range gates {
			gates[i].random = rand.New(rand.NewPCG(seed, uint64(20+i)))
		}
		late := random.IntN(len(hosts))
		restart := func(i int, before, after string) {
			gates[i].woken.Add(1) // a process that is stopped does not end
			hosts[i].restart(func(o *redlock.Options) { f.config(before, after)(o); gates[i].close(o) })
		}
		roll := func(before, after string) {
			for _, i := range random.Perm(len(hosts)) {
				if i != late {
					restart(i, before, after)
					time.Sleep(time.Duration(random.IntN(2000)) * ms)
				}
			}
		}
		first := hosts[(late+1)%len(hosts)]
		change := func(l lists) {
			roll(l.before, l.after)
			first.tries(ctx, "commits", redlock.CommitUnchecked)
			first.until(ctx, "done", isStep(redlock.ChangeDone))
			roll(l.after, l.after)
		}
		back := lists{l.after, l.before}
		before := []lists{{l.before, l.before}, l}[random.IntN(2)] // what the host has that is late
		restart(late, before.before, before.after)
		time.Sleep(time.Duration(random.IntN(6000)) * ms)
		faults.Go(func() { // it wakes now and then
			random := rand.New(rand.NewPCG(seed, 3))
			for ctx.Err() == nil {
				gates[late].away.Store(random.IntN(3) > 0)
				time.Sleep(time.Duration(random.IntN(30_000)) * ms)
			}
		})
		change(l)
		change(back)
		change(l)
		stop()
		faults.Wait()
		for i := range gates {
			gates[i].open()
		}
		late = len(hosts)
		roll(l.after, l.after)
		for _, s := range hosts {
			s.until(f.Context(), "ready with the new nodes", isReady)
		}
		time.Sleep(3 * longest)
	})
}

// TestSearchChangesBack looks for a schedule of faults in which a change, the change back and the change again break a
// promise.
func TestSearchChangesBack(t *testing.T) {
	searchChanges(t, budget()/50, searchBack)
}

// A node with a number that the others have not reached, or with one that is no number, is refused, with the reason and
// what to do. A node with an earlier number gets the one in use, and keeps a fencing counter that is larger. Guards
// change.isAlien, parseStage, change.complete.
func TestNodesWithOtherNumbers(t *testing.T) {
	for number, says := range map[string]string{
		"99":          "has the number 99, which the other nodes of this list have not reached",
		"5":           "has the number 5, which the other nodes of this list have not reached",
		"x":           "without a number that redlockd wrote",
		"0":           "without a number that redlockd wrote",
		"99999999999": "without a number that redlockd wrote",
		"1":           "",
	} {
		t.Run(number, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				defer f.closeSims()
				q := f.another(f.config("abc", "abc"))
				for ; q.Status().Ready < 3; time.Sleep(beat) {
				}
				q.Close()
				for _, s := range f.sims {
					f.number(s, "3")
				}
				f.number(f.sims[2], number)
				counter := strconv.FormatInt(f.sims[2].Now().Add(10*time.Minute).UnixMicro(), 10)
				f.sims[2].Do("HSET", nodeKey, "aa", counter)
				q = f.another(f.config("abc", "abc"))
				defer q.Close()
				time.Sleep(5 * beat)
				if says != "" {
					f.wantState(q, 2, redlock.NodeRefused, says, "FLUSHALL on this node alone")
					return
				}
				f.wantState(q, 2, redlock.NodeReady)
				want(t, "the number", strings.Split(f.sims[2].Do("HGET", nodeKey, "epoch").Str, ":")[4][:2], "3>")
				want(t, "the fencing counter", f.sims[2].Do("HGET", nodeKey, "aa").Str, counter)
			})
		})
	}
}

// number gives the list of a node another number.
func (f *fleet) number(s *redlocktest.Sim, number string) {
	f.Helper()
	parts := strings.Split(s.Do("HGET", nodeKey, "epoch").Str, ":")
	_, list, ok := strings.Cut(parts[4], ">")
	if !ok {
		f.Fatalf("no number: %q", parts)
	}
	parts[4] = number + ">" + list
	s.Do("HSET", nodeKey, "epoch", strings.Join(parts, ":"))
}
