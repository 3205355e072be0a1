package session

import (
	"sync/atomic"
	"time"
)

// rateLimiter bounds how often something is logged. It is safe for concurrent use.
type rateLimiter struct{ last atomic.Int64 } // BootTime

// allow reports whether the pause has passed since it last allowed.
func (r *rateLimiter) allow(now, pause time.Duration) bool {
	last := r.last.Load()
	return (last == 0 || now-time.Duration(last) >= pause) && r.last.CompareAndSwap(last, int64(now))
}

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}
