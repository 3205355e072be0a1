package locktable

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// The simulation drives the Table and the Queue as package session does, in virtual time, with clients
// that lock, wait, repeat, resume and die, with losses, FORCE and restarts. Between any two steps
// another goroutine of the daemon may run: the seed decides which one. After each step it checks what
// must always hold (see check), and at the end that nothing is left.
//
// planted_test.go has mistakes that it must find.

var (
	simSeeds = flag.Int("seeds", 0, "TestSimulation: how many seeds; 0: a few, or many with REDLOCKD_LONG=1")
	simFrom  = flag.Uint64("from", 0, "TestSimulation: the first seed")
)

// TestSimulation finds no mistake. A failure names its seed: go test -run TestSimulation -from N -seeds 1.
func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	if seeds == 0 {
		seeds = effort.Rounds(300, 20_000)
	}
	for i := range uint64(seeds) {
		if found := simulate(*simFrom + i); found != nil {
			t.Fatalf("seed %d: %v", *simFrom+i, found)
		}
	}
}

// finding is what a check of the simulation found.
type finding struct{ check, text string }

func (f *finding) Error() string { return f.check + ": " + f.text }

// tableSim is one simulation.
type tableSim struct {
	random  *rand.Rand
	now     time.Duration
	timers  []simTimer
	tasks   []*simTask
	started int          // the daemon's restarts
	left    int          // restarts that are still to come
	calm    int          // one step of so many is a restart
	haste   int          // in percent: how often time passes although the daemon has something to do
	boot    *simTask     // restores, before anything else runs; nil: that is over
	asks    []*simAsk    // under way
	resumes []*simResume // likewise

	table  *Table
	queue  *Queue
	order  []*simLease      // in the queue, in the order of Join
	claims map[*Waiter]bool // between ClaimNext and Deliver or Unclaim
	begun  map[*redlock.PendingAttempt]*simGrant
	bounds Limits
	counts map[*simLease]bool // LOCKs and leases that the limits count; true: it waits

	tokens  []*simToken // on the nodes
	conns   []*simConn
	leases  []*simLease // that were granted, and whose end was not checked yet
	records map[int]*simRecord
	opened  map[uint64]*RecordedConn // the connections in the state file
	numbers int
}

type simTimer struct {
	at  time.Duration
	run func(*simTask) // nil: it wakes a client
}

// simTask is a goroutine of the daemon, or a client.
type simTask struct {
	s        *tableSim
	isClient bool
	next     func() (func() bool, bool)
	stop     func()
	yield    func(func() bool) bool
	waits    func() bool // nil: it can run
}

type killed struct{}

// pause lets other tasks run.
func (p *simTask) pause() { p.until(func() bool { return true }) }

// until waits for an event.
func (p *simTask) until(condition func() bool) {
	if !p.yield(condition) {
		panic(killed{})
	}
}

func (s *tableSim) spawn(isClient bool, body func(*simTask)) {
	p := &simTask{s: s, isClient: isClient}
	p.next, p.stop = iter.Pull(func(yield func(func() bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		p.yield = yield
		body(p)
	})
	s.tasks = append(s.tasks, p)
}

func (s *tableSim) after(d time.Duration, run func(*simTask)) {
	s.timers = append(s.timers, simTimer{s.now + d, run})
}

// trace prints what happens, with -v and one seed.
func (s *tableSim) trace(format string, args ...any) {
	if testing.Verbose() && *simSeeds == 1 {
		fmt.Printf("%4d ms: "+format+"\n", append([]any{s.now / time.Millisecond}, args...)...)
	}
}

func (s *tableSim) chance(percent int) bool { return s.random.IntN(100) < percent }

func (s *tableSim) fail(check, format string, args ...any) {
	panic(&finding{check, fmt.Sprintf("%d ms: ", s.now/time.Millisecond) + fmt.Sprintf(format, args...)})
}

// run runs tasks and timers until nothing is left to do.
func (s *tableSim) run() {
	for range 200_000 {
		if s.left > 0 && s.boot == nil && s.random.IntN(s.calm) == 0 {
			s.left--
			s.restart()
		}
		var ready []*simTask
		for _, p := range s.tasks {
			if (s.boot == nil || s.boot == p) && (p.waits == nil || p.waits()) {
				ready = append(ready, p)
			}
		}
		if len(ready) == 0 || s.boot == nil && len(s.timers) > 0 && s.chance(s.haste) {
			if len(s.timers) == 0 {
				return
			}
			i := 0
			for j := range s.timers {
				if s.timers[j].at < s.timers[i].at {
					i = j
				}
			}
			timer := s.timers[i]
			s.timers = slices.Delete(s.timers, i, i+1)
			if s.now = max(s.now, timer.at); timer.run != nil {
				s.spawn(false, timer.run)
			}
			continue
		}
		p := ready[s.random.IntN(len(ready))]
		waits, more := p.next()
		if p.waits = waits; !more {
			s.tasks = slices.DeleteFunc(s.tasks, func(other *simTask) bool { return other == p })
			if s.boot == p {
				s.boot = nil
			}
		}
		if s.boot == nil {
			s.check()
		}
	}
	s.fail("endless", "the simulation does not end")
}

// simulate runs the simulation of a seed, and returns what a check found, or nil.
func simulate(seed uint64) (found *finding) {
	s := &tableSim{
		random: rand.New(rand.NewPCG(seed, 0)), table: NewTable(), queue: New(),
		counts: map[*simLease]bool{}, claims: map[*Waiter]bool{}, begun: map[*redlock.PendingAttempt]*simGrant{}, records: map[int]*simRecord{}, opened: map[uint64]*RecordedConn{},
	}
	defer func() {
		for _, p := range s.tasks {
			p.stop()
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*finding)
			if !ok {
				f = &finding{"panic", fmt.Sprint(r)}
			}
			found = f
		}
	}()
	if seed%4 == 3 { // the others need not differ from each other by them
		bounds := rand.New(rand.NewPCG(seed, 1))
		s.bounds = Limits{Leases: 2 + bounds.IntN(4), Waiters: 1 + bounds.IntN(3)}
		s.table.SetLimits(s.bounds)
	}
	for i := range 2 + s.random.IntN(3) {
		s.spawn(true, func(p *simTask) { s.client(p, i) })
	}
	s.left, s.calm, s.haste = s.random.IntN(4), 150, 2
	if s.chance(30) {
		s.haste = 20
	}
	s.run()
	s.checkEmpty()
	return nil
}
