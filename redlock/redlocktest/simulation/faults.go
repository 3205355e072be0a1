package simulation

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// faults has things go wrong, one after the other and several at a time, and
// each of them come right again.
type faults struct {
	w       *world
	random  *rand.Rand
	kinds   []faultKind // each as often as its weight
	gap     time.Duration
	done    sync.WaitGroup // what is to come right again
	foreign atomic.Bool    // a node got the tokens of another

	mu        sync.Mutex // guards what follows; nothing else is called under it
	troubles  map[any]*trouble
	crashed   map[*simNode]bool
	stepped   map[*simNode]time.Duration
	restarted map[*simNode]time.Duration
	forgot    map[*simNode]time.Duration // when a node lost what it held
}

// trouble is what goes wrong at one place: a node, or a link.
type trouble struct {
	now   int           // faults
	ended time.Duration // the last one
}

// faultKind is one way in which things go wrong. begin starts it, says how long
// it lasts and returns what ends it; ok is false where it cannot be now.
type faultKind struct {
	name   string
	weight int
	in     func(Plan) bool // nil: in every one
	begin  func(f *faults) (what mishap, ok bool)
}

// mishap is something that went wrong once.
type mishap struct {
	where string
	at    []any // whose trouble it is
	lasts time.Duration
	end   func()
}

func faultKinds() []faultKind {
	return []faultKind{
		{"slow node", 4, nil, atNode(900, slow)},
		{"lost requests", 4, nil, atNode(300, loseRequests)},
		{"lost replies", 4, nil, atNode(300, loseReplies)},
		{"cut connections", 3, nil, atNode(20, cut)},
		{"late connections", 6, nil, atNode(900, cutLate)},
		{"hang", 4, nil, atNode(900, hang)},
		{"unreachable node", 3, nil, atNode(900, unreachable)},
		{"crash with data", 3, nil, atNode(500, crashWithData)},
		{"script flush", 2, nil, atNode(20, flushScripts)},
		{"refusals", 2, nil, atNode(400, refuseAll)},
		{"clock rate", 1, nil, atNode(20, changeRate)},
		{"slow link", 3, nil, slowLink},
		{"partition", 4, nil, partition},
		{"majority partition", 2, nil, majorityPartition},
		{"majority hang", 1, nil, majorityHang},
		{"daemon crash", 2, forgetting, daemonCrash},
		{"moved address", 20, moving, atNode(20, moveAddress)},
		{"crash without data", 4, losing, atNode(500, crashWithoutData)},
		{"flush", 2, losing, atNode(20, flushAllKeys)},
		{"flush before vouching", 2, losing, atNode(2500, flushBeforeVouching)},
		{"resynchronisation", 2, losing, atNode(300, resync)},
		{"older data", 2, losing, atNode(400, restoreOlder)},
		{"clock step", 6, stepping, atNode(20, stepClock)},
		{"wall clock step", 3, stepping, stepWall},
	}
}

func forgetting(p Plan) bool { return !p.Restarts }
func moving(p Plan) bool     { return p.Moves }
func losing(p Plan) bool     { return p.Loss }
func stepping(p Plan) bool   { return p.Steps }

// FaultKinds are the names of all that Report.Faults can count.
func FaultKinds() []string {
	names := []string{"pause", "cancellation", "request lost", "reply lost", "connection killed", "dial refused", "force", "hand-over", "foreign lock", "daemon restart", "adoption"}
	for _, kind := range faultKinds() {
		names = append(names, kind.name)
	}
	return names
}

func newFaults(w *world) *faults {
	f := &faults{
		w: w, random: w.plan.stream(streamFaults), troubles: map[any]*trouble{}, crashed: map[*simNode]bool{},
		stepped: map[*simNode]time.Duration{}, forgot: map[*simNode]time.Duration{}, restarted: map[*simNode]time.Duration{},
	}
	f.gap = pick[time.Duration](f.random, 100, 200, 300, 500, 1000) * time.Millisecond
	for _, kind := range faultKinds() {
		for range kind.weight {
			if kind.in == nil || kind.in(w.plan) {
				f.kinds = append(f.kinds, kind)
			}
		}
	}
	return f
}

// run lets things go wrong for so long.
func (f *faults) run(span time.Duration) {
	for end := f.w.record.now() + span; f.w.record.now() < end; time.Sleep(below(f.random, f.gap)) {
		f.one(pick(f.random, f.kinds...))
	}
}

func (f *faults) one(kind faultKind) {
	what, ok := kind.begin(f)
	if !ok {
		return
	}
	f.w.record.count(kind.name)
	f.w.record.event(Event{Actor: what.where, What: kind.name, Note: fmt.Sprintf("for %v", what.lasts)})
	f.trouble(what.at, 1)
	f.done.Go(func() {
		time.Sleep(what.lasts)
		what.end()
		f.trouble(what.at, -1)
		f.w.record.event(Event{Actor: what.where, What: "is well", Note: "no more " + kind.name})
	})
}

// trouble counts the faults at some places.
func (f *faults) trouble(places []any, n int) {
	now := f.w.record.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, place := range places {
		if f.troubles[place] == nil {
			f.troubles[place] = &trouble{}
		}
		t := f.troubles[place]
		t.now, t.ended = t.now+n, now
	}
}

// wellSince is since when nothing goes wrong between each host and a node.
func (f *faults) wellSince(n *simNode) []time.Duration {
	now := f.w.record.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	since := make([]time.Duration, len(f.w.hosts))
	for i, h := range f.w.hosts {
		since[i] = max(f.endOf(n, now), f.endOf(h.links[n.index], now))
	}
	return since
}

// endOf needs mu.
func (f *faults) endOf(place any, now time.Duration) time.Duration {
	switch t := f.troubles[place]; {
	case t == nil:
		return 0
	case t.now > 0:
		return now
	default:
		return t.ended
	}
}

// heal waits until all is well again, and sets the clocks right.
func (f *faults) heal() {
	f.done.Wait()
	for _, n := range f.w.nodes {
		n.StepClock(-f.stepped[n])
	}
	f.w.record.event(Event{Actor: "all", What: "is well"})
}
