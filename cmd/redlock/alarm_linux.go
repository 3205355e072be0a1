package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a timer on the clock of deadlines. Time in which the host is suspended
// counts: what became due meanwhile comes as soon as the host goes on.
type alarm struct {
	C    chan struct{} // one place; may be filled by a moment that was set before
	file *os.File
	wg   sync.WaitGroup // of ring
}

// newAlarm is an alarm for no moment yet. It errs where the kernel has no room for it.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("there is no timer for the deadline of the lock: %w", err)
	}
	a := &alarm{C: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "timerfd")}
	a.wg.Go(a.ring)
	return a, nil
}

// ring ends with close.
func (a *alarm) ring() {
	for count := make([]byte, 8); ; {
		if _, err := a.file.Read(count); err != nil {
			return
		}
		select {
		case a.C <- struct{}{}:
		default: // it rings already
		}
	}
}

// set sets the moment, in place of any before. One that is past is now.
func (a *alarm) set(at time.Duration) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, at.Nanoseconds()))} // 0 would be never
	conn, err := a.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			if err := unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &when, nil); err != nil {
				panic("the timer for the deadline cannot be set: " + err.Error()) // a defect
			}
		})
	}
	if err != nil {
		panic("the timer for the deadline is closed: " + err.Error()) // a defect
	}
}

// close ends the alarm.
func (a *alarm) close() {
	a.file.Close()
	a.wg.Wait()
}
