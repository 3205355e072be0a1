//go:build !linux

package job

import (
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// suspendCheck bounds the time of each Go timer: they stop while the host is suspended, but
// deadlines do not.
const suspendCheck = 50 * time.Millisecond

// bootTimer is a timer on the clock of deadlines.
type bootTimer struct {
	C    chan struct{} // buffers one tick, which may belong to an earlier setting
	stop chan struct{}
}

// newBootTimer returns a timer that is not set.
func newBootTimer() (*bootTimer, error) {
	return &bootTimer{C: make(chan struct{}, 1), stop: make(chan struct{})}, nil
}

// set replaces the time of the tick. A time in the past ticks at once.
func (a *bootTimer) set(at time.Duration) {
	a.close()
	a.stop = make(chan struct{})
	go a.run(at, a.stop) // ends at the next set or at close
}

func (a *bootTimer) run(at time.Duration, stop <-chan struct{}) {
	for left := at - boottime.Exact(); left > 0; left = at - boottime.Exact() {
		select {
		case <-time.After(min(left, suspendCheck)):
		case <-stop:
			return
		}
	}
	select {
	case a.C <- struct{}{}:
	default: // the last tick was not read yet
	}
}

// close stops the timer.
func (a *bootTimer) close() { close(a.stop) }
