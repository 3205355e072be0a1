package redlocktest

import (
	"slices"
	"time"
)

// lock takes mu and runs all events that are due, so that an event whose timer has not fired yet
// does not come after what the caller does.
func (s *Sim) lock() {
	s.mu.Lock()
	s.runDue()
}

// runDue runs the events that are due, in order. Some call functions of the test without mu. Other
// events of the same instant wait until these functions return. Later events do not wait for a
// function that sleeps.
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

// arm schedules a call of then with mu held, after d. A flight waits for one event at a time.
func (s *Sim) arm(f *flight, d time.Duration, then func(*flight)) {
	f.detach()
	f.due, f.then = time.Now().Add(d), then
	i, _ := slices.BinarySearchFunc(s.pending, f.due, func(other *flight, due time.Time) int {
		if other.due.After(due) {
			return 1
		}
		return -1
	})
	s.pending = slices.Insert(s.pending, i, f)
	s.setAlarm(f.due)
}

// setAlarm makes a runner come at an instant or earlier. It starts the first runner.
func (s *Sim) setAlarm(at time.Time) {
	switch {
	case s.alarm == nil:
		s.alarm = time.NewTimer(time.Until(at))
		s.runners.Go(s.runEvents)
	case s.alarmAt.IsZero() || at.Before(s.alarmAt):
		s.alarm.Reset(time.Until(at))
	default:
		return
	}
	s.alarmAt = at
}

// runEvents runs due events when the alarm fires, until the node is closed or has too many runners.
// (One goroutine stays, because a new one would have to grow its stack for each flight.)
func (s *Sim) runEvents() {
	for range s.alarm.C {
		if !s.answerAlarm() {
			return
		}
	}
}

func (s *Sim) answerAlarm() (stay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarmAt = time.Time{}
	s.runDue()
	now := time.Now()
	stay = !s.closed && s.surplus == 0
	switch next := slices.IndexFunc(s.pending, func(f *flight) bool { return f.due.After(now) }); {
	case s.closed:
		s.setAlarm(now) // for the next runner
	case next >= 0:
		s.setAlarm(s.pending[next].due)
	}
	if s.surplus > 0 {
		s.surplus--
	}
	return stay
}

// callUnlocked calls fn, a function of the test, without mu, which the caller holds. The caller may
// be the runner, and fn may sleep, so another runner takes over meanwhile.
func (s *Sim) callUnlocked(fn func()) {
	if s.alarm != nil {
		s.runners.Go(s.runEvents)
		defer func() { s.surplus++ }()
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	fn()
}

// disarm removes f from the pending flights. It returns false if f was not pending.
func (s *Sim) disarm(f *flight) bool {
	i := slices.Index(s.pending, f)
	if i < 0 {
		return false
	}
	s.pending = slices.Delete(s.pending, i, i+1)
	return true
}
