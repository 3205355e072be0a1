package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// daemonClock is what is known about the daemon's CLOCK_BOOTTIME. It differs from the client's if
// the two are in different time namespaces.
type daemonClock struct {
	offset time.Duration // by which it is ahead of the client's, at most
}

// deadlineOf returns the deadline from an answer, on the client's clock. The validity bounds it. The
// answer has both in whole milliseconds.
func (d *daemonClock) deadlineOf(r *ipc.Response, now time.Duration) time.Duration {
	return min(duration(r, "deadline")-d.offset, now+duration(r, "ttl")+time.Millisecond)
}

// clockTolerance is how much one clock may seem to differ: the daemon reads it up to 50 µs late. A
// difference below it does no harm: deadlineOf uses the validity, too.
const clockTolerance = 10 * time.Millisecond

// note compares the clocks with the answer to HELLO, which was sent and read at the given times. If
// one clock can have written it between them, the clocks are the same. Otherwise note assumes the
// largest offset that is possible, and so the earliest deadlines.
func (d *daemonClock) note(r *ipc.Response, sent, read time.Duration) {
	daemons := duration(r, "clock")
	offset := daemons + time.Millisecond - sent // the answer has whole milliseconds
	if daemons == 0 || offset >= -clockTolerance && daemons <= read+clockTolerance {
		offset = 0
	}
	d.offset = offset
}
