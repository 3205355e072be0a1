package redlock

import (
	"slices"
	"time"
)

// Those who were woken together try again at a random time within a window of so
// many round trips: long enough for one of them to have his requests on all nodes
// before the next one begins, mostly. Where that was not so, and nobody won, it is
// twice as long.
const (
	windowTrips = 3
	maxDoubled  = 4
	leastWindow = 300 * time.Microsecond
)

// spread is how long one of several waits who were woken together.
func (q *Quorum) spread(name string, splits int) time.Duration {
	return q.rules.Jitter(name, q.window()<<min(splits, maxDoubled))
}

// yielding is how long one waits who lets others go first. They may be farther away
// from the nodes, by how much is not known: so it is long rarely, twice as long half
// as often, up to the node timeout, by which the farthest have an answer.
func (q *Quorum) yielding(name string) time.Duration {
	const parts = 1000
	least := max(2*q.window(), leastYield)
	return min(least*parts/(1+q.rules.Jitter(name, parts)), max(least, q.options.NodeTimeout))
}

const leastYield = 2 * time.Millisecond

// window is a few round trips to a quorum of nodes.
func (q *Quorum) window() time.Duration {
	trips := make([]time.Duration, 0, len(q.lanes))
	for _, l := range q.lanes {
		if trip := l.RoundTripTime(); trip > 0 {
			trips = append(trips, trip)
		}
	}
	slices.Sort(trips)
	if len(trips) < q.quorum {
		return leastWindow
	}
	return min(max(windowTrips*trips[q.quorum-1], leastWindow), q.options.NodeTimeout)
}

// isTracked tells whether enough nodes tell when a lock is given back.
func (q *Quorum) isTracked() bool {
	n := 0
	for _, l := range q.lanes {
		if l.IsTracking() {
			n++
		}
	}
	return n >= q.quorum
}
