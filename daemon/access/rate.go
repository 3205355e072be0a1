package access

import "time"

// Rate is a token bucket of one second's requests.
type Rate struct {
	tokens float64
	last   time.Duration
}

// Allow reports whether one more request is allowed now. It is not safe for concurrent
// use: the goroutine that reads the connection calls it.
func (r *Rate) Allow(perSecond int, now time.Duration) bool {
	limit := float64(perSecond)
	if r.last == 0 {
		r.tokens = limit
	} else {
		r.tokens = min(limit, r.tokens+limit*(now-r.last).Seconds())
	}
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}
