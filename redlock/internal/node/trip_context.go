package node

import (
	"context"
	"sync"
	"time"
)

// tripContext is a context that ends at an instant. The lane needs one for every group, and reuses
// it for each round trip. A connection reads only its deadline and its error, so it makes a
// channel and a timer only if Done is called.
type tripContext struct {
	mu       sync.Mutex // guards what follows; no other mutex is taken inside it
	deadline time.Time
	done     chan struct{}
	timer    *time.Timer
}

// start resets the context to end after d. The previous context must not be in use.
func (b *tripContext) start(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.deadline, b.done, b.timer = time.Now().Add(d), nil, nil
}

func (b *tripContext) Deadline() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline, true
}

func (b *tripContext) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done == nil {
		done := make(chan struct{})
		b.done, b.timer = done, time.AfterFunc(time.Until(b.deadline), func() { close(done) })
	}
	return b.done
}

func (b *tripContext) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

func (b *tripContext) Value(any) any { return nil }
