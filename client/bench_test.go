package client

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkPairs measures the client alone: the model answers at once. An op is a lock and an
// unlock.
func BenchmarkPairs(b *testing.B) {
	for _, workers := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchmarkPairs(b, workers) })
	}
}

func benchmarkPairs(b *testing.B, workers int) {
	c := startModel(b).dial()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			for name := "job-" + strconv.Itoa(w); done.Add(1) <= int64(b.N); {
				pair(b, ctx, c, name)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

func pair(tb testing.TB, ctx context.Context, c *Client, name string) {
	l, err := c.Lock(ctx, name)
	if err != nil {
		tb.Error(err)
		return
	}
	if err := l.Unlock(ctx); err != nil {
		tb.Error(err)
	}
}
