package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// lists are the old and the new list of a change of the nodes: the names of simulated nodes.
type lists struct{ before, after string }

// config returns the nodes of a host, of which some are joining or leaving.
func (f *fleet) config(before, after string) func(*redlock.Options) {
	return func(o *redlock.Options) {
		o.NoQuarantine, o.MaxTTL, o.Nodes = false, longest, nil
		for i, sim := range f.sims {
			name := string(rune('a' + i))
			isOld, isNew := strings.Contains(before, name), strings.Contains(after, name)
			if isOld || isNew {
				node := sim.Node()
				node.Joining, node.Leaving = !isOld, !isNew
				o.Nodes = append(o.Nodes, node)
			}
		}
	}
}

// rolledHost is a host with a client that takes the lock x repeatedly, also across restarts of its daemon.
type rolledHost struct {
	f      *fleet
	name   string
	holder *soleHolder

	mu     bubbleMutex // guards what follows
	q      *redlock.Quorum
	config func(*redlock.Options)
	lease  *redlock.Lease // that its client holds; nil: none
	life   int            // of the client's lease
	losses int
}

// bubbleMutex is a mutex that may be held while fake time passes.
type bubbleMutex chan struct{}

func (m bubbleMutex) Lock()   { m <- struct{}{} }
func (m bubbleMutex) Unlock() { <-m }

// soleHolder checks that one client at a time holds a lock, and that fencing tokens grow.
type soleHolder struct {
	mu     sync.Mutex // guards what follows
	holder string
	fence  uint64
	grants int
	broken []string
	now    func() time.Duration
	trace  []string
}

func (e *soleHolder) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trace = append(e.trace, fmt.Sprintf("%v ", e.now())+fmt.Sprintf(format, args...))
}

func (e *soleHolder) enter(name string, fence uint64) {
	e.note("%s gets it with %d", name, fence)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.holder != "":
		e.broken = append(e.broken, fmt.Sprintf("%s gets the lock while %s holds it", name, e.holder))
	case fence <= e.fence:
		e.broken = append(e.broken, fmt.Sprintf("%s gets the fencing token %d after %d", name, fence, e.fence))
	}
	e.holder, e.fence = name, fence
	e.grants++
}

func (e *soleHolder) leave(name, why string) {
	e.note("%s leaves: %s", name, why)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder == name {
		e.holder = ""
	}
}

func (e *soleHolder) problems() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

// start starts the daemon with the nodes of a config.
func (s *rolledHost) start(config func(*redlock.Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
	s.q = s.f.another(config, named(s.name))
}

// restart ends the daemon, and starts one with another config, which continues the lease of the
// client.
func (s *rolledHost) restart(config func(*redlock.Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []redlock.Record
	if s.lease != nil && s.lease.Err() == nil {
		records = append(records, s.lease.Record())
		expiry := time.AfterFunc(s.lease.Validity(), func() { s.holder.leave(s.name, "its deadline passed during a restart") }) // a client has a timer of its own
		defer expiry.Stop()
	} else if s.lease != nil {
		s.lost(s.lease, s.life) // the daemon may end before it reports that
	}
	s.q.Close()
	s.config = config
	s.q = s.f.another(config, named(s.name))
	s.q.Settle(s.f.Context())
	life := s.life
	adoption := s.q.Adopt(records, func(_ int, l *redlock.Lease) { s.lost(l, life) })
	if len(records) == 0 {
		return
	}
	if s.lease = adoption.Leases[0]; s.lease == nil {
		s.f.Errorf("%s: not adopted: %v", s.name, adoption.Errs[0])
		s.holder.leave(s.name, "not adopted")
	}
	s.holder.note("%s continues its lease", s.name)
}

// lost ends the use of a lease that was lost, at its deadline: the client may work until then.
func (s *rolledHost) lost(l *redlock.Lease, life int) {
	s.holder.note("%s: LOST (%v): %v", s.name, l.Reason(), l.Cause())
	time.AfterFunc(l.Validity(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.life == life && s.lease != nil {
			s.lease = nil
			s.losses++
			s.holder.leave(s.name, "LOST")
		}
	})
}

// work takes the lock and holds it for random times until ctx is done.
func (s *rolledHost) work(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		s.mu.Lock()
		q := s.q
		s.life++
		life := s.life
		s.mu.Unlock()
		r := redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever, Keep: true, OnLost: func(l *redlock.Lease) { s.lost(l, life) }}
		l, err := q.Acquire(ctx, r)
		s.mu.Lock()
		if err != nil || s.q != q { // the daemon was restarted meanwhile
			s.mu.Unlock()
			if l != nil {
				l.Lose(redlock.LostExpired) // nobody uses it
			}
			time.Sleep(10 * ms)
			continue
		}
		s.lease = l
		s.holder.enter(s.name, l.Fence())
		s.mu.Unlock()
		time.Sleep(time.Duration(random.IntN(2000)+1) * ms * time.Duration(1+4*random.IntN(2)))
		s.mu.Lock()
		if held := s.lease; held != nil && s.life == life && held.Err() == nil {
			s.lease = nil
			s.holder.leave(s.name, "done")
			held.BeginRelease()
		}
		for s.lease != nil { // it was lost, and its deadline has not passed
			s.mu.Unlock()
			time.Sleep(10 * ms)
			s.mu.Lock()
		}
		s.mu.Unlock()
		time.Sleep(time.Duration(random.IntN(50)+1) * ms)
	}
}

// named gives a host its name.
func named(name string) func(*redlock.Options) { return func(o *redlock.Options) { o.Host = name } }

func (s *rolledHost) quorum() *redlock.Quorum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.q
}

func (s *rolledHost) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.q.Close()
}

// until waits for a condition that comes true without faults.
func (s *rolledHost) until(ctx context.Context, what string, is func(redlock.Status) bool) bool {
	for i := 0; !is(s.quorum().Status()); i++ {
		if i == 1200 {
			status := s.quorum().Status()
			s.f.Errorf("%s: never %s: %+v %+v", s.name, what, status.Change, status.Nodes)
			return false
		}
		if time.Sleep(100 * ms); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// awaitStep waits for a step of the change in a host's config.
func (f *fleet) awaitStep(q *redlock.Quorum, step redlock.ChangeStep) {
	f.Helper()
	for i := 0; q.Status().Change.Step != step; i++ {
		if i == 1200 {
			f.Fatalf("never %s: %+v %+v", step, q.Status().Change, q.Status().Nodes)
		}
		time.Sleep(100 * ms)
	}
}

func isStep(steps ...redlock.ChangeStep) func(redlock.Status) bool {
	return func(s redlock.Status) bool { return s.Change != nil && slices.Contains(steps, s.Change.Step) }
}

func isReady(s redlock.Status) bool { return s.Spare() >= 0 }

// changes are the changes of the nodes that the tests make.
var changes = map[string]lists{
	"one to three":           {"a", "abc"},
	"one to another":         {"a", "b"},
	"three to five":          {"abc", "abcde"},
	"five to three":          {"abcde", "abc"},
	"three to three others":  {"abc", "def"},
	"one of three replaced":  {"abc", "abd"},
	"three to one":           {"abc", "a"},
	"two of three exchanged": {"abc", "ade"},
}

// changeTest runs body with three hosts, whose clients work, and with nodes of which those of the
// old list are admitted.
func changeTest(t *testing.T, l lists, seed uint64, body func(f *fleet, hosts []*rolledHost, random *rand.Rand)) (problems, trace []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6)
		defer f.closeSims()
		for i, sim := range f.sims {
			sim.SetDelay(func() (time.Duration, time.Duration) {
				return time.Duration(200+i*10) * time.Microsecond, 200 * time.Microsecond
			})
		}
		e := &soleHolder{now: f.now}
		var hosts []*rolledHost
		for i := range 3 {
			s := &rolledHost{f: f, name: fmt.Sprintf("h%d", i+1), holder: e, mu: make(bubbleMutex, 1)}
			s.start(f.config(l.before, l.before))
			hosts = append(hosts, s)
		}
		ctx, stop := context.WithCancel(t.Context())
		for _, s := range hosts {
			s.until(ctx, "ready", isReady)
		}
		var all sync.WaitGroup
		for i, s := range hosts {
			all.Go(func() { s.work(ctx, rand.New(rand.NewPCG(seed, uint64(10+i)))) })
		}
		body(f, hosts, rand.New(rand.NewPCG(seed, 1)))
		stop()
		all.Wait()
		for _, s := range hosts {
			s.close()
		}
		time.Sleep(longest) // timers of lost leases
		if problems, trace = e.problems(), e.trace; t.Failed() {
			problems = append(problems, "the test of this change failed: see above")
		}
		if e.grants < 3 { // a client holds the lock for up to ten seconds
			t.Errorf("only %d grants", e.grants)
		}
	})
	return problems, trace
}

// The nodes are changed while locks are held and contended for, and hosts are restarted one after the
// other. No lease is lost, one client at a time holds the lock, and fencing tokens grow. At the end,
// the old nodes are not needed.
func TestChangeNodes(t *testing.T) {
	for what, l := range changes {
		t.Run(what, func(t *testing.T) {
			problems, trace := changeTest(t, l, 1, func(f *fleet, hosts []*rolledHost, _ *rand.Rand) {
				ctx := f.Context()
				for _, s := range hosts {
					s.restart(f.config(l.before, l.after))
					time.Sleep(700 * ms)
				}
				for _, s := range hosts {
					s.until(ctx, "begun", isStep(redlock.ChangeBegun))
				}
				if err := hosts[1].quorum().CommitChange(ctx); err != nil {
					t.Error(err)
				}
				for _, s := range hosts {
					s.until(ctx, "done", isStep(redlock.ChangeDone))
				}
				for _, s := range hosts {
					s.restart(f.config(l.after, l.after))
					time.Sleep(900 * ms)
				}
				for i, sim := range f.sims {
					if !strings.Contains(l.after, string(rune('a'+i))) {
						sim.Down()
					}
				}
				time.Sleep(10 * time.Second)
				for _, s := range hosts {
					s.until(ctx, "ready with the new nodes", isReady)
					want(t, s.name+": lost leases", s.losses, 0)
				}
			})
			for _, problem := range problems {
				t.Error(problem)
			}
			if t.Failed() {
				t.Log(strings.Join(trace, "\n"))
			}
		})
	}
}

// chaos makes nodes fail and recover until ctx is done: each loses its connections, hangs, is down for
// a while, or loses its data. After that, no node fails for afterFlush, so that all others have their data: a
// loss of a majority of the old list is beyond what a change promises.
func (f *fleet) chaos(ctx context.Context, l lists, random *rand.Rand, afterFlush time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(4000)) * ms)
		node := random.IntN(len(f.sims))
		sim, name := f.sims[node], string(rune('a'+node))
		span := time.Duration(random.IntN(2500)) * ms
		switch random.IntN(4) {
		case 0:
			sim.Cut()
		case 1:
			sim.Hang()
			time.Sleep(span)
			sim.Resume()
		case 2:
			sim.Down()
			time.Sleep(span)
			sim.Up()
		default:
			if len(l.before) > 2 || !strings.Contains(l.before, name) {
				sim.Flush()
				time.Sleep(afterFlush)
			}
		}
	}
}

// searchChange makes a change with random faults, in a random order of hosts. One host may stay with
// the old list for a while after the others have the new one.
func searchChange(t *testing.T, l lists, seed uint64) (problems, trace []string) {
	return changeTest(t, l, seed, func(f *fleet, hosts []*rolledHost, random *rand.Rand) {
		ctx, stop := context.WithCancel(f.Context())
		var faults sync.WaitGroup
		faults.Go(func() { f.chaos(ctx, l, rand.New(rand.NewPCG(seed, 2)), 2*longest+4*beat) })
		late := random.IntN(4) // 3: none
		roll := func(before, after string) {
			for _, i := range random.Perm(len(hosts)) {
				if i != late {
					hosts[i].restart(f.config(before, after))
					time.Sleep(time.Duration(random.IntN(3000)) * ms)
				}
			}
		}
		roll(l.before, l.after)
		if random.IntN(4) == 0 { // back, and again
			roll(l.before, l.before)
			roll(l.before, l.after)
		}
		first := hosts[(late+1)%3]
		first.tries(ctx, "commits", redlock.CommitUnchecked) // one host may have the old list
		if random.IntN(3) == 0 {                             // the host that commits is killed
			time.Sleep(time.Duration(random.IntN(2000)) * ms)
			first.restart(f.config(l.before, l.after))
		}
		if random.IntN(3) > 0 { // otherwise the hosts get the new list too early
			first.until(ctx, "done", isStep(redlock.ChangeDone))
		}
		next := hosts[(late+2)%3]
		next.restart(f.config(l.after, l.after))
		time.Sleep(time.Duration(random.IntN(8000)) * ms)
		stop()
		faults.Wait()
		first.until(f.Context(), "done without faults", isStep(redlock.ChangeDone))
		late = 3
		roll(l.after, l.after)
		for _, s := range hosts {
			s.until(f.Context(), "ready with the new nodes", isReady)
		}
		time.Sleep(3 * longest)
	})
}

// tries repeats do until it succeeds.
func (s *rolledHost) tries(ctx context.Context, what string, do func(*redlock.Quorum) error) {
	var err error
	for range 1200 {
		if err = do(s.quorum()); err == nil || ctx.Err() != nil {
			return
		}
		time.Sleep(100 * ms)
	}
	s.f.Errorf("%s never %s: %v", s.name, what, err)
}

// TestSearchChanges looks for a schedule of faults in which a change of the nodes breaks a promise.
func TestSearchChanges(t *testing.T) { searchChanges(t, budget()/10, searchChange) }

// searchChanges searches all changes in turn, with as many seeds as said, and at least eight.
func searchChanges(t *testing.T, seeds int, search func(*testing.T, lists, uint64) (problems, trace []string)) {
	t.Helper()
	names := slices.Sorted(maps.Keys(changes))
	for seed := range uint64(max(seeds, 8)) {
		what := names[seed%uint64(len(names))]
		problems, trace := search(t, changes[what], seed)
		for _, problem := range problems {
			t.Errorf("%s, seed %d: %s", what, seed, problem)
		}
		if t.Failed() {
			t.Fatalf("%s, seed %d:\n%s", what, seed, strings.Join(trace, "\n"))
		}
	}
}

// A host that sleeps with the old list holds the lock when the change is committed. No host with the
// new list gets it before the old lease has expired, and the fencing token is larger although the
// clocks of the old host and of the old nodes are ahead.
func TestLateHostAndNewHost(t *testing.T) {
	for _, l := range []lists{{"a", "b"}, {"abc", "d"}} {
		t.Run(l.before, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 6)
				defer f.closeSims()
				for i, sim := range f.sims {
					if strings.Contains(l.before, string(rune('a'+i))) {
						sim.StepClock(20 * time.Second)
					}
				}
				ahead := func(o *redlock.Options) { o.Wall = func() time.Time { return time.Now().Add(20 * time.Second) } }
				old := f.another(f.config(l.before, l.before), ahead)
				defer old.Close()
				joint := f.another(f.config(l.before, l.after))
				defer joint.Close()
				f.awaitStep(joint, redlock.ChangeBegun)
				time.Sleep(20 * time.Second)
				r := redlock.Request{Name: "x", TTL: longest, Keep: true, Wait: time.Minute}
				held, err := old.Acquire(t.Context(), r)
				if err == nil {
					err = redlock.CommitUnchecked(joint)
				}
				if err != nil {
					t.Fatal(err)
				}
				added := f.another(f.config(l.after, l.after))
				defer added.Close()
				got, err := added.Acquire(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if held.Validity() > 0 {
					t.Errorf("%v: granted while the old host holds it", l)
				}
				if got.Fence() <= held.Fence() {
					t.Errorf("%v: the fencing token is not larger", l)
				}
				if _, err := old.Acquire(t.Context(), redlock.Request{Name: "y", TTL: longest}); err == nil {
					t.Errorf("%v: the old host gets a lock", l)
				}
				f.wantState(old, 0, redlock.NodeRefused, "has the old list")
			})
		})
	}
}

// A host with the new list gets no vote while others have the old one: the reason says which config
// comes first. A change that has begun can be undone, and another one can begin then. While one is in
// progress, another one is named. Guards change.refusal, Fleet.Undo.
func TestSkippedAndUndoneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		defer f.closeSims()
		old := f.another(f.config("abc", "abc"), named("web1"))
		defer old.Close()
		for ; old.Status().Ready < 3; time.Sleep(100 * ms) {
		}
		skips := f.another(f.config("abd", "abd"), named("web2"))
		defer skips.Close()
		time.Sleep(3 * longest)
		f.wantState(skips, 0, redlock.NodeRefused, "mark nodes as joining or leaving")
		if err := old.CommitChange(t.Context()); !errors.Is(err, redlock.ErrChange) {
			t.Errorf("a host without a change commits: %v", err)
		}
		joint := f.another(f.config("abc", "abd"), named("web3"))
		f.awaitStep(joint, redlock.ChangeBegun)
		other := f.another(f.config("abc", "ab"), named("web4"))
		defer other.Close()
		time.Sleep(longest)
		want(t, "conflict", other.Status().Change.Conflict, true)
		wantErr(t, "commit of another change", other.CommitChange(t.Context()), redlock.ErrChange)
		want(t, "locks of the host with another change", other.Status().Spare() >= 0, true)
		err := old.UndoChange(t.Context())
		wantErr(t, "undo while a host has the change", err, redlock.ErrChange)
		wantText(t, err.Error(), "would begin it again: web3:")
		joint.Close()
		time.Sleep(11 * time.Second)
		if err := old.UndoChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := 0; other.Status().Change.Step != redlock.ChangeBegun && i < 300; i++ {
			time.Sleep(100 * ms)
		}
		want(t, "step of the other change after the undo", other.Status().Change.Step, redlock.ChangeBegun)
	})
}

// A quarantine after a clock jump keeps the stage of the node, although no other node is asked at its
// end. So a host with the old list that slept gets no vote after it. Guards Epoch.Stage,
// judgement.decide.
func TestClockJumpKeepsStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6)
		defer f.closeSims()
		old := f.another(f.config("abc", "abc"))
		defer old.Close()
		joint := f.another(f.config("abc", "def"))
		f.awaitStep(joint, redlock.ChangeBegun)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		every(f.sims[:3], func(s *redlocktest.Sim) { s.StepClock(time.Minute) })
		time.Sleep(beat + longest/2)
		for i := range 3 {
			f.wantState(joint, i, redlock.NodeQuarantined, "clock jumped")
		}
		joint.Close()
		time.Sleep(3 * longest)
		for i := range 3 {
			f.wantState(old, i, redlock.NodeRefused, "has the old list")
		}
		if _, err := old.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest}); err == nil {
			t.Error("a host with the old list gets a lock after the change")
		}
		again := f.another(f.config("abc", "def"))
		defer again.Close()
		time.Sleep(3 * longest)
		want(t, "state of the change for a joint host", again.Status().Change.Step, redlock.ChangeDone)
		want(t, "nodes that are ready", again.Status().Ready, 6)
	})
}

// ADMIT of a node that lost its data does not let it serve hosts with the old list again: it is refused
// while the stage of the other nodes is not known. Guards endQuarantine: errStageUnknown.
func TestAdmitInAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		old := f.another(f.config("abc", "abc"))
		defer old.Close()
		joint := f.another(f.config("abc", "a"))
		f.awaitStep(joint, redlock.ChangeBegun)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		f.sims[1].Flush()
		time.Sleep(2 * beat)
		f.wantState(old, 1, redlock.NodeQuarantined)
		wantErr(t, "ADMIT by a host with the old list", old.Admit(t.Context(), "b"), redlock.ErrNotAdmitted)
		f.wantState(old, 1, redlock.NodeQuarantined, "being changed")
		time.Sleep(3 * longest)
		f.wantState(old, 1, redlock.NodeQuarantined)
	})
}

// Hosts tell the nodes that are being changed which list they have. A commit is refused while a host with
// the old list is at work, and names it. Guards change.justBegunLocked, change.reports, Quorum.CommitChange.
func TestHostsOfChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		defer f.closeSims()
		start := func(name, before, after string) *redlock.Quorum {
			return f.another(f.config(before, after), named(name))
		}
		wantHosts := func(q *redlock.Quorum, wanted ...string) {
			t.Helper()
			hosts, err := q.ChangeHosts(t.Context())
			var got []string
			for _, h := range hosts {
				text := h.Name + " " + string(h.List)
				if !h.IsAtWork() {
					text += " gone"
				}
				got = append(got, text)
			}
			if err != nil || !slices.Equal(got, wanted) {
				t.Errorf("hosts: %q, %v, want %q", got, err, wanted)
			}
		}
		reports := func() (n int) {
			for _, sim := range f.sims {
				n += sim.Counts().Commands["HSET"]
			}
			return n
		}
		web1, web2 := start("web1", "abc", "abc"), start("web2", "abc", "abc")
		defer func() { web1.Close(); web2.Close() }()
		time.Sleep(2 * longest)
		want(t, "reports without a change", reports(), 0)
		wantHosts(web1)
		web1.Close()
		web1 = start("web1", "abc", "abd")
		for ; web1.Status().Change.Step != redlock.ChangeBegun; time.Sleep(10 * ms) {
			if err := web1.CommitChange(t.Context()); err == nil {
				t.Fatal("committed before it has begun")
			}
		}
		err := web1.CommitChange(t.Context())
		wantErr(t, "commit", err, redlock.ErrChange)
		wantText(t, err.Error(), "hosts without this change in their config: web2: give them")
		wantHosts(web1, "web1 joint", "web2 old")
		wantHosts(web2, "web1 joint", "web2 old")
		every(f.sims[:2], (*redlocktest.Sim).Down)
		time.Sleep(2 * time.Second)
		err = web1.CommitChange(t.Context())
		wantErr(t, "commit while nodes are down", err, redlock.ErrChange)
		if _, err := web1.ChangeHosts(t.Context()); !errors.Is(err, redlock.ErrChange) {
			t.Errorf("hosts while most nodes are down: %v", err)
		}
		every(f.sims[:2], (*redlocktest.Sim).Up)
		web2.Close()
		time.Sleep(11 * time.Second)
		wantHosts(web1, "web1 joint", "web2 old gone")
		for i := 0; web1.CommitChange(t.Context()) != nil; i++ {
			if time.Sleep(100 * ms); i == 600 {
				t.Fatal(web1.CommitChange(t.Context()))
			}
		}
		f.awaitStep(web1, redlock.ChangeDone)
		web2 = start("web2", "abc", "abc")
		time.Sleep(3 * time.Second)
		wantHosts(web1, "web1 joint", "web2 old")
		f.wantState(web2, 0, redlock.NodeRefused, "has the old list")
		web2.Close()
		web2 = start("web2", "abd", "abd")
		time.Sleep(3 * time.Second)
		if err := web1.CommitChange(t.Context()); err != nil {
			t.Errorf("commit again: %v", err)
		}
		web1.Close()
		web1 = start("web1", "abd", "abd")
		time.Sleep(3 * time.Second)
		before := reports()
		time.Sleep(longest)
		want(t, "reports after the change", reports()-before, 0)
	})
}

// A change has begun for its host only when old hosts have reported to the nodes: also if it is begun
// again after an undo, when the joining node may vote already. Guards change.justBegunLocked.
func TestOldHostIsSeenBeforeCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		defer f.closeSims()
		old := f.another(f.config("a", "a"), named("web2"))
		defer old.Close()
		joint := f.another(f.config("a", "ab"), named("web1"))
		for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(10 * ms) {
		}
		joint.Close()
		time.Sleep(11 * time.Second)
		if err := old.UndoChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // the earlier reports are old then
		joint = f.another(f.config("a", "ab"), named("web1"))
		defer joint.Close()
		for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(10 * ms) {
		}
		err := joint.CommitChange(t.Context())
		wantErr(t, "commit", err, redlock.ErrChange)
		if err != nil {
			wantText(t, err.Error(), "web2")
		}
	})
}
