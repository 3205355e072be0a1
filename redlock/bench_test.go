package redlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// workers runs do n times in total, in the given number of goroutines.
func workers(b *testing.B, goroutines int, do func(worker int) error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for worker := range goroutines {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(worker); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

var crowds = []int{1, 64}

// BenchmarkPair measures an acquire and its release on five redis-servers. Each goroutine has its
// own lock.
func BenchmarkPair(b *testing.B) {
	s := startServers(b, 5)
	for _, goroutines := range crowds {
		b.Run(name("%d", goroutines), func(b *testing.B) {
			workers(b, goroutines, func(worker int) error { return onePair(s.q, name("x%d", worker)) })
		})
	}
}

func onePair(q *redlock.Quorum, name string) error {
	l, err := q.Acquire(context.Background(), redlock.Request{Name: name, TTL: realTTL, Keep: true})
	if err != nil {
		return err
	}
	return l.Release(context.Background())
}

// BenchmarkExtension measures one extension of one lease on five redis-servers.
func BenchmarkExtension(b *testing.B) {
	s := startServers(b, 5)
	for _, goroutines := range crowds {
		b.Run(name("%d", goroutines), func(b *testing.B) {
			leases := make([]*redlock.Lease, goroutines)
			for i := range leases {
				leases[i] = s.acquire(redlock.Request{Name: name("x%d", i), TTL: realTTL})
				defer s.release(leases[i])
			}
			workers(b, goroutines, func(worker int) error { return leases[worker].Extend(context.Background(), 0) })
			b.StopTimer()
		})
	}
}
