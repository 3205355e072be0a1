package state

import (
	"sync"
	"time"
)

// timers run functions later, until stop. The zero value is ready.
type timers struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows; no other mutex is taken inside it
	stopped bool
	waiting map[*time.Timer]struct{}
}

// after calls do after a delay, unless stop comes first. stop waits for it.
func (t *timers) after(delay time.Duration, do func()) {
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

// begin is false if stop came first.
func (t *timers) begin(timer **time.Timer) bool {
	t.mu.Lock() // after has it until the timer is set
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	delete(t.waiting, *timer)
	t.running.Add(1)
	return true
}

// stop ends what has not begun, and waits for what has.
func (t *timers) stop() {
	t.mu.Lock()
	t.stopped = true
	for timer := range t.waiting {
		timer.Stop()
	}
	t.waiting = nil
	t.mu.Unlock()
	t.running.Wait()
}
