package simulation

import (
	"cmp"
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

// Plan describes one simulation: nodes, daemons and clients in a bubble of fake time, and their
// faults. It determines everything that happens.
type Plan struct {
	Seed uint64

	// Span is how long clients work and faults happen; 0 means 6 s. About the same time follows
	// without faults.
	Span time.Duration

	// Steps steps the clocks of nodes and hosts by seconds. Exclusion relies on clocks that are not
	// stepped. It is not checked then; everything else is.
	Steps bool

	// Fresh begins with nodes that no daemon has seen before; all of them are quarantined.
	Fresh bool

	// Loss makes nodes lose their data: by a crash without data, FLUSHALL, or another node's data.
	Loss bool

	// Moves makes the addresses of nodes lead to another Redis and back.
	Moves bool

	// Restarts kills daemons, and starts new ones that adopt their leases. (Otherwise, the leases
	// of a crashed daemon expire.)
	Restarts bool

	// Scene replaces the random faults with a fixed sequence. nil means none.
	Scene *Scene

	// Exchanges makes clients hold a lock that was passed on until its token is exchanged.
	Exchanges bool

	// Mins makes clients request that a lock stays taken after its holder has ended (min=).
	Mins bool

	// Activities run beside the clients and the faults.
	Activities []*Activity

	// Table is a deliberate mistake in the daemons' tables; "" means none.
	Table TableBug

	// Options changes the options of a daemon after everything else has set them. jitter returns a
	// random time in [0, n) that the seed determines. Options may be nil.
	Options func(o *redlock.Options, jitter func(caller string, n time.Duration) time.Duration)

	// Sim changes a new node after everything else has. It may be nil.
	Sim func(*redlocktest.Sim)

	// Commands adds the commands that the nodes execute to the trace.
	Commands bool
}

// Scene is a simulation without random faults: certain calls in a certain order, at about certain
// instants, that a random search does not reach.
type Scene struct {
	Name     string
	hosts    int  // 0: two or three
	nodes    int  // 0: three
	observed bool // the wait queues are checked
	play     func(*world, context.Context)
}

// Activity runs in a simulation while clients work and faults happen.
type Activity struct {
	start func(*world, context.Context)
}

const (
	simulatedSpan   = 6 * time.Second
	simulatedMaxTTL = 1500 * time.Millisecond
	nodeTimeout     = 50 * time.Millisecond
)

// Simulate runs a plan and checks the result. It does not fail t: the report holds the violations.
// It must not run beside other tests, because it makes crypto/rand of the whole process repeatable.
// The trace is the same each time only with GOMAXPROCS(1). If a goroutine outlives its daemon,
// testing/synctest panics, and Simulate adds the trace to that panic.
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
	random *rand.Rand // first for making the world, then for its faults
	record *recorder
	nodes  []*simNode
	hosts  []*host
	locks  []string
	faults *faults
	turns  *turns  // nil: nobody observes the wait queues
	tracer *tracer // nil: the simulation is not traced

	clientCount int           // number of clients
	idle        time.Duration // the longest pause of a client between two locks
	busy        bool          // all clients want the same lock often, for a short time

	quarantines bool // nodes without a vote must be quarantined from now on

	work    context.Context // ends when the clients must end
	clients sync.WaitGroup
}

// Each part of the world has its own random source, so the other parts do not change what it draws.
const (
	streamWorld = iota
	streamFaults
	streamOperator
	streamForeignClient
	streamWake
	streamPasses
	streamLists    = 7
	streamCrowd    = 8
	streamRestart  = 50
	streamNode     = 100
	streamHost     = 200
	streamClient   = 300
	streamLink     = 1 << 32
	streamListener = 1<<32 + 1<<31
	streamJitter   = 1 << 33
)

func (p *Plan) stream(n int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(n))) }

func newWorld(p Plan, report *Report) *world {
	w := &world{plan: p, random: p.stream(streamWorld), record: newRecorder(report)}
	w.locks, w.idle = []string{"x", "y"}[:1+w.random.IntN(2)], 130*time.Millisecond
	if p.Scene != nil && p.Scene.observed {
		w.turns = newTurns(w)
	}
	if p.Scene == Traced {
		w.tracer = &tracer{w: w, lock: w.locks[0], tokens: map[string]int{}}
	}
	for i := range w.nodeCount() {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	hosts := pick(w.random, 2, 3)
	if w.plan.Scene != nil && w.plan.Scene.hosts > 0 {
		hosts = w.plan.Scene.hosts
	}
	for i := range hosts {
		w.hosts = append(w.hosts, w.newHost(i))
	}
	w.clientCount = len(w.hosts) + 1 + w.random.IntN(2)
	if w.busy = oneIn(w.random, 4); w.busy {
		w.locks, w.idle, w.clientCount = w.locks[:1], 10*time.Millisecond, w.clientCount+1
		w.plan.Span /= 2
	}
	w.faults = newFaults(w)
	return w
}

// nodeCount returns the number of nodes: three in most worlds. A scene has as many as it says.
func (w *world) nodeCount() int {
	count := pick(w.random, 3, 3, 3, 3, 3, 3, 5, 5, 5, 4, 6, 7)
	if w.plan.Scene != nil {
		return cmp.Or(w.plan.Scene.nodes, 3)
	}
	return count
}

// run executes the plan: first a scene or random faults, then a time without faults.
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
	w.startForeignClient()
	for _, a := range w.plan.Activities {
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

// open starts the daemons. Unless the plan begins with all nodes quarantined, it first ends their
// quarantine.
func (w *world) open() {
	if w.plan.Fresh {
		w.quarantines = true
	}
	w.hosts[0].startAndWait()
	if !w.quarantines {
		w.quarantines = true
		w.hosts[0].crash()
		w.hosts[0].start()
	}
	for _, h := range w.hosts[1:] {
		h.start()
	}
}

// calm waits until the faults have no consequences left, then checks every daemon. Each daemon must
// get every lock, and must be woken when another host releases one.
func (w *world) calm(ctx context.Context) {
	time.Sleep(w.calmTime())
	for _, h := range w.hosts {
		for _, lock := range w.locks {
			h.mustGet(ctx, lock)
		}
	}
	w.wakeUps(ctx)
	w.passRepeatedly(ctx)
	w.nameHolders(ctx)
	time.Sleep(strayAllowance + 100*time.Millisecond) // then every daemon has forgotten what is left
}

// calmTime returns the time of a quarantine, plus the time until a daemon notices its end, and
// more if clocks were stepped.
func (w *world) calmTime() time.Duration {
	calm := simulatedMaxTTL + 2*time.Second
	if w.faults.foreign.Load() {
		calm = max(calm, copiesLast)
	}
	if w.plan.Steps {
		calm += maxClockStep
	}
	return calm
}

// close ends everything that runs, and counts what really happened on the nodes' connections.
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

// watch samples the daemons and looks at the nodes repeatedly, until the caller calls end.
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
	sampleEvery = 10*time.Millisecond + 7 // nothing else happens at these instants
	lookEvery   = 10
)

// pick returns one of the values.
func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// below returns a random time in (0, d). It is odd, so hardly anything else happens at the same
// instant.
func below(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d))) | 1
}

// between returns a random time in [low, high].
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + below(random, high-low)
}

// oneIn returns true with a probability of 1/n.
func oneIn(random *rand.Rand, n int) bool { return random.IntN(n) == 0 }
