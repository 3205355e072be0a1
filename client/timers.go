package client

import (
	"container/heap"
	"time"
)

// timers are the timers of a core. Core.runTimers runs those that are due.
type timers []*timer

// timer runs a function once, at or after a time.
type timer struct {
	when time.Duration
	run  func()
	set  bool
	at   int // its index in timers, if it is set
}

// Len implements heap.Interface.
func (t timers) Len() int { return len(t) }

// Less implements heap.Interface.
func (t timers) Less(i, j int) bool { return t[i].when < t[j].when }

// Swap implements heap.Interface.
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	one := x.(*timer)
	one.set, one.at = true, len(*t)
	*t = append(*t, one)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	one := (*t)[last]
	(*t)[last], *t = nil, (*t)[:last]
	one.set = false
	return one
}

// start sets a timer, or moves one that is set.
func (t *timers) start(one *timer, when time.Duration) {
	if one.when = when; one.set {
		heap.Fix(t, one.at)
	} else {
		heap.Push(t, one)
	}
}

func (t *timers) stop(one *timer) {
	if one.set {
		heap.Remove(t, one.at)
	}
}

// due removes and returns a timer that is due, or returns nil.
func (t *timers) due(now time.Duration) *timer {
	if len(*t) == 0 || (*t)[0].when > now {
		return nil
	}
	return heap.Pop(t).(*timer)
}
