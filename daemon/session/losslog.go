package session

import (
	"sync"
	"sync/atomic"
	"time"
)

// At trace level the log has each request, each attempt on the nodes and each answer,
// without the ids of leases and without what a client wrote where it is not well
// formed: that may be one. At any other level that costs a look at the level.

// rateLimiter bounds what is logged. It is for any goroutine.
type rateLimiter struct{ last atomic.Int64 } // BootTime

// allow tells whether the pause is over since it was last so.
func (s *rateLimiter) allow(now, pause time.Duration) bool {
	last := s.last.Load()
	return (last == 0 || now-time.Duration(last) >= pause) && s.last.CompareAndSwap(last, int64(now))
}

// lossLog bounds how many lost leases the log names for each user. A user can have thousands
// of leases end in a moment (max=, hold=ttl), and the losses of others must stay visible.
type lossLog struct {
	mu    sync.Mutex // guards users
	users map[int]*losses
}

// losses are the leases of a user that ended within lossPause after the first one.
type losses struct {
	user   string
	n      int
	latest string // lock that is not in the log
}

// So many leases of a user are named in the log in so long; of more it says how many.
const (
	lossLines = 200
	lossPause = 10 * time.Second
)

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}
