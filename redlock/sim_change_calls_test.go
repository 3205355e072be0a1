package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A call that does not wait does not fail because nodes get new epochs. Guards isOutdated, updated and
// Lease.extend.
func TestCallsDuringAChange(t *testing.T) {
	release := func(l *redlock.Lease) error { _, err := l.BeginRelease(); return err }
	for call, do := range map[string]func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error{
		"acquire": func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error {
			l, err := q.Acquire(ctx, redlock.Request{Name: l.Name() + " too", TTL: longest, Keep: true})
			if err != nil {
				return err
			}
			return release(l)
		},
		"extend":    func(ctx context.Context, _ *redlock.Quorum, l *redlock.Lease) error { return l.Extend(ctx, 0) },
		"downgrade": func(ctx context.Context, _ *redlock.Quorum, l *redlock.Lease) error { return l.Downgrade(ctx, 0, nil) },
		"outlast": func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error {
			if n := q.Outlast(ctx, []*redlock.Lease{l}, []time.Duration{l.Since() + time.Hour}); n != 1 {
				return fmt.Errorf("%d leases outlast this process, want 1", n)
			}
			return nil
		},
		"who": func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error {
			_, err := q.Who(ctx, l.Name())
			return err
		},
		"who waits": func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error {
			_, _, err := q.WhoWaits(ctx, l.Name())
			return err
		},
		"force": func(ctx context.Context, q *redlock.Quorum, l *redlock.Lease) error {
			name := l.Name() + " too"
			if _, err := q.Acquire(ctx, redlock.Request{Name: name, TTL: longest, Keep: true}); err != nil {
				return err
			}
			_, err := q.Force(ctx, name)
			return err
		},
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testCallDuringAChange(t, func(ctx context.Context, q *redlock.Quorum, name string) error {
					l, err := q.Acquire(ctx, redlock.Request{Name: name, TTL: longest, Keep: true})
					if err != nil {
						return err
					}
					for ctx.Err() == nil {
						if err := do(t.Context(), q, l); err != nil {
							return err
						}
						time.Sleep(60 * ms) // so there is a call about every gap
					}
					return release(l)
				})
			})
		})
	}
}

// testCallDuringAChange runs clients of two hosts, one before a change of the nodes begins until it has
// begun, the other until it is done.
func testCallDuringAChange(t *testing.T, client func(ctx context.Context, q *redlock.Quorum, name string) error) {
	f := newFleet(t, 3)
	defer f.closeSims()
	every(f.sims, func(s *redlocktest.Sim) {
		s.SetDelay(func() (time.Duration, time.Duration) { return 2 * ms, 2 * ms })
	})
	clients, gap := thinned(16, 4*ms, 8) // of a host; each begins so long after the previous one
	run := func(q *redlock.Quorum, host string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				time.Sleep(time.Duration(i) * gap)
				if err := client(ctx, q, fmt.Sprint(host, "-", i)); err != nil {
					t.Errorf("%s: %v", host, err)
				}
			})
		}
		return func() { cancel(); all.Wait() }
	}
	old := f.another(f.config("a", "a"), named("web1"))
	defer old.Close()
	for ; old.Status().Ready < 1; time.Sleep(100 * ms) {
	}
	stop := run(old, "old")
	time.Sleep(500 * ms)
	joint := f.another(f.config("a", "abc"), named("web2"))
	defer joint.Close()
	f.awaitStep(joint, redlock.ChangeBegun)
	stop()
	stop = run(joint, "joint")
	time.Sleep(500 * ms)
	if err := redlock.CommitUnchecked(joint); err != nil {
		t.Error(err)
	}
	f.awaitStep(joint, redlock.ChangeDone)
	stop()
}

// wantText checks that a text has a part.
func wantText(t testing.TB, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q: want %q in it", text, part)
	}
}

// A lock was granted by a and c before node a refused hosts with the old list. Its release after that
// reports no loss, although the nodes with the lock are no quorum any more. If a majority of the old
// list does not have it, it does.
func TestReleaseDuringCommit(t *testing.T) {
	if err := redlock.ReleaseError("abc", "abd", "a", "bd"); err != nil {
		t.Errorf("released on a and c: %v", err)
	}
	if err := redlock.ReleaseError("abc", "abd", "a", "abd"); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("released on c: %v, want a loss", err)
	}
}
