package timers

import (
	"sync"
	"time"
)

// A Set runs functions later, until Stop. The zero value is ready.
type Set struct {
	running sync.WaitGroup // the functions that run now; Stop waits for them

	mu      sync.Mutex // guards the fields below; no other mutex is taken inside it
	stopped bool
	waiting map[*Timer]struct{}
}

// A Timer calls a function later. Its methods are safe for concurrent use.
type Timer struct {
	set   *Set
	timer *time.Timer // guarded by the set's mu
}

// After calls do after a delay, unless Stop comes first. Stop waits for a running call.
func (s *Set) After(delay time.Duration, do func()) *Timer {
	t := &Timer{set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return t
	}
	t.timer = time.AfterFunc(delay, func() {
		if s.begin(t) {
			defer s.running.Done()
			do()
		}
	})
	if s.waiting == nil {
		s.waiting = map[*Timer]struct{}{}
	}
	s.waiting[t] = struct{}{}
	return t
}

// begin reports whether the function of a timer that fired may run. It may not if the timer or the
// set was stopped in the meantime.
func (s *Set) begin(t *Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.waiting[t]; !waits {
		return false
	}
	delete(s.waiting, t)
	s.running.Add(1)
	return true
}

// Stop cancels the functions that have not begun, and waits for the others.
func (s *Set) Stop() {
	s.mu.Lock()
	s.stopped = true
	for t := range s.waiting {
		t.timer.Stop()
	}
	s.waiting = nil
	s.mu.Unlock()
	s.running.Wait()
}

// Stop prevents the call, unless it has begun. It does not wait.
func (t *Timer) Stop() {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	if _, waits := t.set.waiting[t]; waits {
		delete(t.set.waiting, t)
		t.timer.Stop()
	}
}
