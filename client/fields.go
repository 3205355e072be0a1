package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// text is a field of an answer, "" if it is not there: what a daemon leaves out
// it does not know.
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

// leaseOf is the ID that an answer tells of a lease; "": it lacks what a lease is made of.
func leaseOf(r *ipc.Response) string {
	if duration(r, "deadline") == 0 {
		return ""
	}
	return text(r, "lease")
}

// fenceOf is the fencing token of a grant; 0: none.
func fenceOf(r *ipc.Response) uint64 {
	return uint64(number(r, "fence"))
}

// deadlineOf is the deadline that an answer tells. It is on the clock of both
// sides; should these not be one clock after all (another time namespace), the
// validity counts, which is told in whole milliseconds.
func deadlineOf(r *ipc.Response, now time.Duration) time.Duration {
	return min(duration(r, "deadline"), now+duration(r, "ttl")+time.Millisecond)
}
