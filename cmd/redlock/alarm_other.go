//go:build !linux

package main

import (
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// suspendCheck bounds how long a timer runs at a time: it stands still while the
// host is suspended, and deadlines do not.
const suspendCheck = 50 * time.Millisecond

// alarm is a timer on the clock of deadlines.
type alarm struct {
	C    chan struct{} // one place; may be filled by a moment that was set before
	stop chan struct{}
}

// newAlarm is an alarm for no moment yet.
func newAlarm() (*alarm, error) {
	return &alarm{C: make(chan struct{}, 1), stop: make(chan struct{})}, nil
}

// set sets the moment, in place of any before. One that is past is now.
func (a *alarm) set(at time.Duration) {
	a.close()
	a.stop = make(chan struct{})
	go a.ring(at, a.stop) // ends with the next set, or with close
}

func (a *alarm) ring(at time.Duration, stop <-chan struct{}) {
	for left := at - boottime.Exact(); left > 0; left = at - boottime.Exact() {
		select {
		case <-time.After(min(left, suspendCheck)):
		case <-stop:
			return
		}
	}
	select {
	case a.C <- struct{}{}:
	default: // it rings already
	}
}

// close ends the alarm.
func (a *alarm) close() { close(a.stop) }
