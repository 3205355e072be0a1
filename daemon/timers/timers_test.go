package timers

import (
	"testing"
	"testing/synctest"
	"time"
)

// Stop cancels functions that have not begun, and waits for one that has. Later calls run nothing.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		ran := map[string]bool{}
		running, done := make(chan struct{}), false
		s.After(time.Second, func() {
			close(running)
			time.Sleep(time.Second)
			done = true
		})
		s.After(time.Minute, func() { ran["before Stop"] = true })
		<-running
		s.Stop()
		if !done {
			t.Error("Stop did not wait for the running function")
		}
		s.After(0, func() { ran["after Stop"] = true })
		time.Sleep(time.Hour)
		if len(ran) > 0 {
			t.Errorf("%v ran, want nothing", ran)
		}
	})
}

// A timer that was stopped, before or after it is due, runs nothing, and the set forgets it.
func TestStoppedTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		ran := 0
		s.After(time.Second, func() { ran++ }).Stop()
		done := s.After(time.Second, func() { ran++ })
		if n := s.count(); n != 1 {
			t.Errorf("%d timers wait, want 1", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if done.Stop(); ran != 1 || s.count() != 0 {
			t.Errorf("%d ran and %d wait, want 1 and none", ran, s.count())
		}
		s.Stop()
		s.After(time.Second, func() { ran++ }).Stop()
	})
}

func (s *Set) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
