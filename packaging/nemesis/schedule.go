package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// brokenNodes of five nodes may be broken at the same time: a quorum remains.
	brokenNodes = 2
	// lossPause is the time between faults after which a node has no vote for maxTTL, so that there
	// is a quorum most of the time.
	lossPause = 3 * time.Second

	// firstTries is how often a kind of fault comes first until it changes something. In some runs,
	// it cannot.
	firstTries = 5
)

// A schedule makes faults until the run ends. The seed decides the faults. Their order also depends on
// which of them changed something.
type schedule struct {
	world  *world
	random *rand.Rand
	kinds  []faultKind   // each as often as its weight
	gap    time.Duration // mean time between two faults
	done   chan struct{} // closed at the end of the run

	faults sync.WaitGroup // the ones in progress
	mu     sync.Mutex     // guards the fields below
	first  []faultKind    // kinds that have changed nothing yet, except those in progress
	busy   map[[2]int]bool
	nodes  int // number of broken nodes
	lost   time.Time
	counts map[string]*faultCount
	failed error // error of the first fault that could not be made
}

// A faultCount is how often a kind of fault was made, and how often it changed something.
type faultCount struct {
	made, effective, effect int
}

func newSchedule(w *world) *schedule {
	s := &schedule{world: w, gap: w.options.gap, done: make(chan struct{}), busy: map[[2]int]bool{}, counts: map[string]*faultCount{},
		random: rand.New(rand.NewPCG(w.options.seed, 0))}
	for _, kind := range faultKinds {
		if w.options.rivals > 0 && kind.losesVotes {
			continue // a node that loses a lock of redsync does not sit out
		}
		if kind.possible(w) && strings.Contains(kind.name, w.options.only) {
			s.first = append(s.first, kind)
			for range kind.weight {
				s.kinds = append(s.kinds, kind)
			}
		}
	}
	return s
}

// run makes faults until stop is closed, and returns when all are repaired.
func (s *schedule) run(stop <-chan struct{}) error {
	for s.failure() == nil && s.world.ended() == nil {
		select {
		case <-stop:
			close(s.done)
			s.faults.Wait()
			return s.failure()
		case <-time.After(time.Duration(s.random.Int64N(int64(2 * s.gap)))):
			s.next()
		}
	}
	close(s.done)
	s.faults.Wait()
	return s.failure()
}

func (s *schedule) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// next makes the next fault of the seed, unless all its targets are already broken. Kinds that have
// changed nothing yet come first, so that every run has all kinds.
func (s *schedule) next() {
	seed := s.random.Uint64()
	random := s.kinds[s.random.IntN(len(s.kinds))]
	for _, kind := range append(s.withoutEffect(), random) {
		number, found := s.choose(kind, s.random.IntN(s.targets(kind.target)))
		if !found {
			continue
		}
		f := &injector{world: s.world, random: rand.New(rand.NewPCG(seed, 1)), done: s.done, also: s.count}
		s.faults.Go(func() { s.make(kind, number, f) }) // run waits for it
		return
	}
}

// withoutEffect returns the kinds that have changed nothing yet, except those in progress.
func (s *schedule) withoutEffect() []faultKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.first)
}

func (s *schedule) make(kind faultKind, number int, f *injector) {
	from := now()
	effect, err := kind.apply(f, number)
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.world.faultLog, "%d %v %v effect %d: %s\n", number, from, now(), effect, kind.name)
	delete(s.busy, [2]int{int(kind.target), number})
	if kind.target == aNode {
		s.nodes--
	}
	if err != nil && s.failed == nil {
		s.failed = fmt.Errorf("fault %q, number %d: %w", kind.name, number, err)
	}
	if count := s.countLocked(kind.name, effect); count.effective == 0 && count.made < firstTries {
		s.first = append(s.first, kind)
	}
}

// count counts a fault.
func (s *schedule) count(name string, effect int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked(name, effect)
}

func (s *schedule) countLocked(name string, effect int) *faultCount {
	count := s.counts[name]
	if count == nil {
		count = &faultCount{}
		s.counts[name] = count
	}
	count.made++
	count.effect += effect
	if effect > 0 {
		count.effective++
	}
	return count
}

// effective returns how many faults have changed something so far.
func (s *schedule) effective() (total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, count := range s.counts {
		total += count.effective
	}
	return total
}

// choose reserves a target for a fault. From first on, it prefers targets that hold locks or serve
// their holders, and otherwise takes any that is not broken.
func (s *schedule) choose(kind faultKind, first int) (number int, found bool) {
	count := s.targets(kind.target)
	for i := range 2 * count {
		number = (first + i) % count
		if (i >= count || s.matters(kind.target, number)) && s.reserve(kind, number) {
			return number, true
		}
	}
	return 0, false
}

func (s *schedule) matters(t target, number int) bool {
	switch t {
	case aClient:
		return s.world.heldBy(s.world.clients[number]) > 0
	case aDaemon:
		return s.world.heldThrough(s.world.daemons[number]) > 0
	}
	return true
}

// reserve marks a target as broken, and a kind as in progress. It returns false if the target must not be
// broken now.
func (s *schedule) reserve(kind faultKind, number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]int{int(kind.target), number}
	if s.busy[key] || kind.target == aNode && s.nodes >= brokenNodes {
		return false
	}
	if kind.losesVotes && s.world.options.quarantines() {
		if time.Since(s.lost) < lossPause {
			return false
		}
		s.lost = time.Now()
	}
	s.busy[key] = true
	s.first = slices.DeleteFunc(s.first, func(one faultKind) bool { return one.name == kind.name })
	if kind.target == aNode {
		s.nodes++
	}
	return true
}

func (s *schedule) targets(t target) int {
	switch t {
	case aNode:
		return len(s.world.nodes)
	case aDaemon, lateHost:
		return len(s.world.daemons)
	case allDaemons, theCommitter, theOperator:
		return 1
	default:
		return len(s.world.clients)
	}
}
