package bench

import (
	"testing"
	"time"
)

// Quantiles have an error of at most 2 % over the whole range.
func TestHistogram(t *testing.T) {
	var h, other histogram
	if h.quantile(0.5) != 0 {
		t.Errorf("the median of nothing is %v", h.quantile(0.5))
	}
	for i := range 10_000 {
		to := &h
		if i%2 == 0 {
			to = &other
		}
		to.add(time.Duration(i+1) * 100 * time.Microsecond)
	}
	h.merge(&other)
	for share, want := range map[float64]time.Duration{0.0001: 100 * time.Microsecond, 0.5: 500 * time.Millisecond, 0.9: 900 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(share); got < want || got > want*102/100 {
			t.Errorf("quantile %v is %v, want %v", share, got, want)
		}
	}
	h.add(100 * time.Hour)
	if h.n != 10_001 || h.longest != 100*time.Hour || h.quantile(1) < time.Hour {
		t.Errorf("with one of 100 h: %d, the longest %v, quantile 1 is %v", h.n, h.longest, h.quantile(1))
	}
	h.add(0) // a coarse clock measures 0
	if h.n != 10_002 || h.longest != 100*time.Hour || h.quantile(0.00001) > time.Microsecond {
		t.Errorf("with one of 0: %d, the longest %v, the shortest %v", h.n, h.longest, h.quantile(0.00001))
	}
}
