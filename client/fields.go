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
