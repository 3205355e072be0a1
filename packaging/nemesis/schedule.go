package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// brokenNodes of five may be broken at the same time: a quorum stays.
	brokenNodes = 2
	// lossPause separates faults after which a node has no vote for maxTTL, so that
	// quorums exist most of the time.
	lossPause = 2 * time.Second
)

// A schedule makes faults until the run is over. What it breaks, and in which order, is
// decided by the seed.
type schedule struct {
	world  *world
	random *rand.Rand
	kinds  []faultKind   // each as often as its weight says
	first  []faultKind   // those that were not made yet
	gap    time.Duration // mean time between two faults
	done   chan struct{} // closed at the end of the run

	faults sync.WaitGroup // those under way
	mu     sync.Mutex     // guards what follows
	busy   map[[2]int]bool
	nodes  int // broken ones
	lost   time.Time
	counts map[string]*faultCount
	failed error // the first fault that could not be made
}

// A faultCount says how often a kind of fault was made, and how often it changed something.
type faultCount struct {
	made, effective, effect int
}

func newSchedule(w *world) *schedule {
	s := &schedule{world: w, gap: w.options.gap, done: make(chan struct{}), busy: map[[2]int]bool{}, counts: map[string]*faultCount{},
		random: rand.New(rand.NewPCG(w.options.seed, 0))}
	for _, kind := range faultKinds {
		if kind.possible(w) && strings.Contains(kind.name, w.options.only) {
			s.first = append(s.first, kind)
			for range kind.weight {
				s.kinds = append(s.kinds, kind)
			}
		}
	}
	return s
}

// run makes faults until stop is closed, and returns when all are mended.
func (s *schedule) run(stop <-chan struct{}) error {
	for s.failure() == nil {
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

// next makes the next fault of the seed, unless what it would break is broken already.
func (s *schedule) next() {
	kind := s.kinds[s.random.IntN(len(s.kinds))]
	if len(s.first) > 0 { // every kind once, so that no run is without one
		kind = s.first[0]
	}
	number := s.random.IntN(s.count(kind.target))
	seed := s.random.Uint64()
	if kind.alone {
		s.faults.Wait()
	}
	if !s.reserve(kind, number) {
		return
	}
	if len(s.first) > 0 {
		s.first = s.first[1:]
	}
	f := &injector{world: s.world, random: rand.New(rand.NewPCG(seed, 1)), done: s.done}
	s.faults.Go(func() { s.finish(kind, number, f) })
	if kind.alone {
		s.faults.Wait()
	}
}

func (s *schedule) finish(kind faultKind, number int, f *injector) {
	effect, err := kind.apply(f, number)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, [2]int{int(kind.target), number})
	if kind.target == aNode {
		s.nodes--
	}
	if err != nil && s.failed == nil {
		s.failed = fmt.Errorf("fault %q, number %d: %w", kind.name, number, err)
	}
	count := s.counts[kind.name]
	if count == nil {
		count = &faultCount{}
		s.counts[kind.name] = count
	}
	count.made++
	count.effect += effect
	if effect > 0 {
		count.effective++
	}
}

// reserve marks what a fault breaks, and returns false if it must not be broken now.
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
	if kind.target == aNode {
		s.nodes++
	}
	return true
}

func (s *schedule) count(t target) int {
	switch t {
	case aNode:
		return len(s.world.nodes)
	case aDaemon:
		return len(s.world.daemons)
	default:
		return len(s.world.clients)
	}
}
