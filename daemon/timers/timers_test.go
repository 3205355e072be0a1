package timers

import (
	"testing"
	"testing/synctest"
	"time"
)

// Stop ends what has not begun, and waits for what has. Later calls run nothing.
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
			t.Error("Stop did not wait for what was running")
		}
		s.After(0, func() { ran["after Stop"] = true })
		time.Sleep(time.Hour)
		if len(ran) > 0 {
			t.Errorf("ran %v, want nothing", ran)
		}
	})
}
