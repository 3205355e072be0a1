package timers

import (
	"sync"
	"time"
)

// A Set runs functions later, until Stop. The zero value is ready.
type Set struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows; no other mutex is taken inside it
	stopped bool
	waiting map[*time.Timer]struct{}
}

// After calls do after a delay, unless Stop comes first. Stop waits for it.
func (t *Set) After(delay time.Duration, do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	if t.waiting == nil {
		t.waiting = map[*time.Timer]struct{}{}
	}
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() {
		if t.begin(&timer) {
			defer t.running.Done()
			do()
		}
	})
	t.waiting[timer] = struct{}{}
}

// begin is false if Stop came first.
func (t *Set) begin(timer **time.Timer) bool {
	t.mu.Lock() // After has it until the timer is set
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	delete(t.waiting, *timer)
	t.running.Add(1)
	return true
}

// Stop ends the functions that have not begun, and waits for the others.
func (t *Set) Stop() {
	t.mu.Lock()
	t.stopped = true
	for timer := range t.waiting {
		timer.Stop()
	}
	t.waiting = nil
	t.mu.Unlock()
	t.running.Wait()
}
