package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Plan is one simulation: nodes, daemons and clients in a bubble of fake time, and the
// faults there. The plan determines all of it.
type Plan struct {
	Seed uint64

	// Span is how long clients work and faults happen; 0 means 6 s. About as much time
	// follows, in which all is well again.
	Span time.Duration

	// Steps steps the clocks of nodes and hosts by seconds. That breaks what the exclusion
	// rests on. The exclusion is not checked then, but everything else is.
	Steps bool

	// Fresh begins with nodes that no daemon has seen before: all quarantined.
	Fresh bool

	// Loss makes nodes lose their data: a crash without data, FLUSHALL, another node's
	// data.
	Loss bool

	// Moves makes the addresses of nodes lead to another Redis, and back.
	Moves bool

	// Restarts kills daemons, and starts others that continue with their leases.
	// (Otherwise, daemons that crash leave their leases behind.)
	Restarts bool

	// Retains makes daemons retain locks that nobody on their host waits for.
	Retains bool

	// Scene directs the simulation: it has no random faults then. nil means none.
	Scene *Scene

	// Exchanges has clients keep a lock that was passed on until its token is exchanged.
	Exchanges bool

	// Mins makes clients request that a lock stays taken after its holder has ended (min=).
	Mins bool

	// Beside goes on beside the clients and the faults.
	Beside []*Activity

	// Table is a mistake that daemons make then; "" means none.
	Table TableBug

	// Options changes the options of a daemon, after all other code. jitter returns a
	// random time in [0, n) that makes the daemon repeatable. Options may be nil.
	Options func(o *redlock.Options, jitter func(who string, n time.Duration) time.Duration)

	// Sim changes a node, after all other code. It may be nil.
	Sim func(*redlocktest.Sim)

	// Commands adds what the nodes execute to the trace.
	Commands bool
}

// Scene is what happens in a simulation without random faults: certain calls, in a certain
// order, at about certain instants. A random search does not come across it.
type Scene struct {
	Name string
	play func(*world, context.Context)
}

// Activity is something that goes on in a simulation while clients work and things go wrong.
type Activity struct {
	start func(*world, context.Context)
}

const (
	simulatedSpan   = 6 * time.Second
	simulatedMaxTTL = 1500 * time.Millisecond
	nodeTimeout     = 50 * time.Millisecond
)

// Simulate runs a plan and checks the result. It does not fail t: the report holds the
// violations. It must not run beside other tests, because it makes crypto/rand of the
// whole process repeatable. It needs GOMAXPROCS(1) for the same trace each time. If a
// goroutine outlives its daemon, testing/synctest panics, with the trace.
func Simulate(t *testing.T, p Plan) *Report {
	t.Helper()
	if p.Span == 0 {
		p.Span = simulatedSpan
	}
	report := &Report{Plan: p, Faults: map[string]int{}, Forced: map[string]time.Duration{}, ForceAnswered: map[string]time.Duration{}}
	defer func() {
		if what := recover(); what != nil {
			panic(fmt.Sprintf("%v\n%s", what, report.Tail(50)))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, p.Seed)
		w := newWorld(p, report)
		w.run(t.Context())
	})
	report.check()
	return report
}

// world is everything in a simulation.
type world struct {
	plan   Plan
	random *rand.Rand // for making the world, and for its faults later
	record *chronicle
	nodes  []*simNode
	hosts  []*host
	locks  []string
	faults *faults

	crowd int           // number of clients
	idle  time.Duration // at most so long between two locks of a client
	busy  bool          // all want the same lock, repeatedly, for a short while

	settled bool // the nodes may not vote without a quarantine now

	work    context.Context // ends when the clients are to end
	clients sync.WaitGroup
}

// Each part of the world has its own source of random numbers. It draws the same numbers
// whatever the others do.
const (
	streamWorld = iota
	streamFaults
	streamOperator
	streamForeigner
	streamWake
	streamPasses
	streamRetained
	streamLists
	streamRestart = 50
	streamNode    = 100
	streamHost    = 200
	streamClient  = 300
	streamLink    = 1 << 32
	streamHearer  = 1<<32 + 1<<31
	streamJitter  = 1 << 33
)

func (p *Plan) stream(n int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(n))) }

func newWorld(p Plan, report *Report) *world {
	w := &world{plan: p, random: p.stream(streamWorld), record: newChronicle(report)}
	w.locks, w.idle = []string{"x", "y"}[:1+w.random.IntN(2)], 130*time.Millisecond
	for i := range w.nodeCount() {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	for i := range pick(w.random, 2, 3) {
		w.hosts = append(w.hosts, w.newHost(i))
	}
	w.crowd = len(w.hosts) + 1 + w.random.IntN(2)
	if w.busy = oneIn(w.random, 4); w.busy {
		w.locks, w.idle, w.crowd = w.locks[:1], 10*time.Millisecond, w.crowd+1
		w.plan.Span /= 2
	}
	w.faults = newFaults(w)
	return w
}

// nodeCount returns how many nodes there are: three in most worlds, and in every scene.
func (w *world) nodeCount() int {
	count := pick(w.random, 3, 3, 3, 3, 3, 3, 5, 5, 5, 4, 6, 7)
	if w.plan.Scene != nil {
		return 3
	}
	return count
}

// run executes the plan: a scene or random faults first, and then calm.
func (w *world) run(ctx context.Context) {
	defer w.close()
	w.open()
	if w.plan.Scene != nil {
		watching := w.watch()
		w.plan.Scene.play(w, ctx)
		w.calm(ctx)
		watching()
		return
	}
	work, end := context.WithCancel(ctx)
	w.work = work
	w.startClients(ctx)
	w.startOperator(ctx)
	w.startForeigner()
	for _, a := range w.plan.Beside {
		a.start(w, ctx)
	}
	w.startRestarts()
	watching := w.watch()
	w.faults.run(w.plan.Span)
	end()
	w.clients.Wait()
	w.faults.heal()
	w.calm(ctx)
	watching()
}

// open starts the daemons. Unless the plan begins with the quarantine of all nodes, it
// first lets the quarantine end.
func (w *world) open() {
	if w.plan.Fresh {
		w.settled = true
	}
	w.hosts[0].startAndWait()
	if !w.settled {
		w.settled = true
		w.hosts[0].crash()
		w.hosts[0].start()
	}
	for _, h := range w.hosts[1:] {
		h.start()
	}
}

// calm checks every daemon once all is well, and what was left has had time to expire.
// Every daemon gets every lock, and is woken when another host releases one.
func (w *world) calm(ctx context.Context) {
	time.Sleep(w.calmBefore())
	for _, h := range w.hosts {
		for _, lock := range w.locks {
			h.mustGet(ctx, lock)
		}
	}
	w.wakeUps(ctx)
	w.passOver(ctx)
	w.retainOver(ctx)
	w.nameHolders(ctx)
	time.Sleep(stayAllowance + 100*time.Millisecond) // a daemon has forgotten what is left now
}

// calmBefore returns the time of a quarantine, plus the time to notice its end.
// Stepped clocks are right again after more seconds.
func (w *world) calmBefore() time.Duration {
	calm := simulatedMaxTTL + 2*time.Second
	if w.faults.foreign.Load() {
		calm = max(calm, copiesLast)
	}
	if w.plan.Steps {
		calm += longestStep
	}
	return calm
}

// close ends everything that runs, and counts what really happened at the nodes.
func (w *world) close() {
	for _, h := range w.hosts {
		h.crash()
	}
	w.faults.done.Wait()
	for _, n := range w.nodes {
		n.Close()
		w.record.countNode(n.Counts())
	}
}

// watch looks at the daemons and the nodes repeatedly, until the caller calls the returned
// function.
func (w *world) watch() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			w.record.sample()
			if n%lookEvery == 0 {
				w.lookAtNodes()
			}
		}
	}()
	return func() { close(stop); <-done }
}

const (
	sampleEvery = 10*time.Millisecond + 7 // an instant that nothing else uses
	lookEvery   = 10
)

// pick returns one of the values.
func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// below returns a random time in (0, d). It is odd, so it is hardly ever the instant of
// anything else.
func below(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d))) | 1
}

// between returns a random time in [low, high].
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + below(random, high-low)
}

// oneIn returns true once in n times.
func oneIn(random *rand.Rand, n int) bool { return random.IntN(n) == 0 }
