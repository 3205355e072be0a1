//go:build linux

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"
)

// await returns the next value from a channel, or the zero value if it is closed. If none comes
// within the bound, the test fails. what describes the awaited event. seen describes the actual
// state; it may be nil.
func await[T any](t *testing.T, bound time.Duration, from <-chan T, what string, seen func() string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(bound):
	}
	if seen == nil {
		t.Fatalf("waited %v for %s", bound, what)
	}
	t.Fatalf("waited %v for %s; seen so far:\n%s", bound, what, seen())
	panic("not reached")
}

// awaitAll waits for goroutines, as await does.
func awaitAll(t *testing.T, bound time.Duration, all *sync.WaitGroup, what string, seen func() string) {
	t.Helper()
	ended := make(chan struct{})
	go func() { // until all have ended
		all.Wait()
		close(ended)
	}()
	await(t, bound, ended, what, seen)
}

// within returns a context for one request: it ends after patience, or with the test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
