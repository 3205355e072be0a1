package bench

import (
	"math"
	"time"
)

// histogram counts durations in buckets that are 2 % wide, so its size does not depend on the
// number of measurements.
type histogram struct {
	n       uint64
	longest time.Duration
	counts  [buckets]uint64
}

const (
	bucketWidth = 1.02
	buckets     = 1150 // from 1 µs to more than two hours
)

// time measures f, unless f fails.
func (h *histogram) time(f func() error) error {
	start := time.Now()
	err := f()
	if err == nil {
		h.add(time.Since(start))
	}
	return err
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.longest = max(h.longest, d)
	h.counts[bucketOf(d)]++
}

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	return min(buckets-1, int(math.Ceil(math.Log(float64(d)/1000)/math.Log(bucketWidth))))
}

func (h *histogram) merge(other *histogram) {
	h.n += other.n
	h.longest = max(h.longest, other.longest)
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// quantile returns the duration that a share of all measurements does not exceed, with an error of
// at most 2 %, or 0 for an empty histogram.
func (h *histogram) quantile(share float64) time.Duration {
	rank := uint64(math.Ceil(share * float64(h.n)))
	var below uint64
	for i, n := range h.counts {
		if below += n; n > 0 && below >= rank {
			return min(h.longest, time.Duration(1000*math.Pow(bucketWidth, float64(i))))
		}
	}
	return 0
}
