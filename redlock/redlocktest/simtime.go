package redlocktest

import (
	"slices"
	"time"
)

// lock takes mu and lets happen what is due: a timer that has not fired yet must
// not make what it stands for come after what the caller does now.
func (s *Sim) lock() {
	s.mu.Lock()
	s.runDue()
}

// runDue lets happen what is due, in order. Functions of the test run in
// between, without mu; what else is due at that instant waits until they have
// returned. Should one sleep, what is due later does not wait for it.
func (s *Sim) runDue() {
	for len(s.pending) > 0 {
		now := time.Now()
		f := s.pending[0]
		if f.due.After(now) || !now.After(s.running) {
			return
		}
		s.pending = slices.Delete(s.pending, 0, 1)
		s.running = now
		f.then(f)
		if s.running.Equal(now) {
			s.running = time.Time{}
		}
	}
}

// arm has then called after d, with mu held. A flight waits for one thing at a
// time.
func (s *Sim) arm(f *flight, d time.Duration, then func(*flight)) {
	f.park()
	f.due, f.then = time.Now().Add(d), then
	i, _ := slices.BinarySearchFunc(s.pending, f.due, func(other *flight, due time.Time) int {
		if other.due.After(due) {
			return 1
		}
		return -1
	})
	s.pending = slices.Insert(s.pending, i, f)
	s.timers.Add(1)
	f.timer = time.AfterFunc(d, func() {
		defer s.timers.Done()
		s.lock()
		defer s.mu.Unlock()
	})
}

// disarm takes f out of what is to happen. It reports false where f waits for
// nothing.
func (s *Sim) disarm(f *flight) bool {
	i := slices.Index(s.pending, f)
	if i < 0 {
		return false
	}
	s.pending = slices.Delete(s.pending, i, i+1)
	if f.timer.Stop() {
		s.timers.Done()
	}
	return true
}
