package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// text returns a field of an answer, or "" if it is missing: a daemon omits what it does not know.
func text(r *ipc.Response, key string) string {
	value, _ := r.Get(key)
	return value
}

func number(r *ipc.Response, key string) int64 {
	n, _ := r.Int64(key)
	return n
}

func duration(r *ipc.Response, key string) time.Duration {
	d, _ := r.Duration(key)
	return d
}

// leaseOf returns the ID of a lease from an answer, or "" if the answer does not describe a lease.
func leaseOf(r *ipc.Response) string {
	if duration(r, "deadline") == 0 {
		return ""
	}
	return text(r, "lease")
}

// fenceOf returns the fencing token of a grant, or 0 if there is none.
func fenceOf(r *ipc.Response) uint64 {
	return uint64(number(r, "fence"))
}

// deadlineOf returns the deadline from an answer, on the client's clock. The validity bounds it. The
// answer has both in whole milliseconds.
func (c *Client) deadlineOf(r *ipc.Response, now time.Duration) time.Duration {
	return min(duration(r, "deadline")-time.Duration(c.clockOffset.Load()), now+duration(r, "ttl")+time.Millisecond)
}

// clockTolerance is how much one clock may seem to differ: the daemon reads it up to 50 µs late. A
// difference below it does no harm: deadlineOf uses the validity, too.
const clockTolerance = 10 * time.Millisecond

// noteClock compares the clocks with the answer to HELLO, which was sent at the given time. Clocks
// differ if daemon and client are in different time namespaces. If the answer was written between
// sent and now by one clock, that clock is taken for the same one. Otherwise noteClock assumes the
// largest offset that is possible, and so the earliest deadlines.
func (c *Client) noteClock(r *ipc.Response, sent time.Duration) {
	daemons := duration(r, "clock")
	c.knowsItsClock.Store(daemons > 0)
	offset := daemons + time.Millisecond - sent // the answer has whole milliseconds
	if daemons == 0 || offset >= -clockTolerance && daemons <= c.clock()+clockTolerance {
		offset = 0
	}
	c.clockOffset.Store(int64(offset))
}
