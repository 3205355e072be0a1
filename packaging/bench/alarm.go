package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a sleep that is precise and costs no CPU. A Go timer is neither: in an
// idle process one of 1 ms may ring at 2 ms, because epoll counts in milliseconds;
// and who spins in wait for the time takes a CPU from those whom he measures.
// A timerfd has the kernel end the wait at the right time.
type alarm struct {
	fd   int // file's: to ask the file for it would make its reads block a thread
	file *os.File
}

// newAlarm needs a file descriptor until close.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep waits for d, from one goroutine at a time; a nil alarm can sleep for 0 only.
func (a *alarm) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	err := unix.TimerfdSettime(a.fd, 0, &spec, nil)
	if err == nil {
		var rung [8]byte
		_, err = a.file.Read(rung[:])
	}
	if err != nil { // of a timerfd that is open: cannot be, and figures would be wrong
		panic(fmt.Sprintf("timerfd: %v", err))
	}
}

func (a *alarm) close() { _ = a.file.Close() } // nothing to be written is in it
