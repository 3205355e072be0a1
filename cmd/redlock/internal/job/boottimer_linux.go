package job

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootTimer is a timer on the clock of deadlines, which runs while the host is suspended. If the
// time passes during a suspension, the timer ticks when the host resumes.
type bootTimer struct {
	C    chan struct{} // buffers one tick, which may belong to an earlier setting
	file *os.File
	wg   sync.WaitGroup // counts run
}

// newBootTimer returns a timer that is not set. It fails if the kernel has no memory or file
// descriptor for it.
func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("there is no timer for the deadline of the lock: %w", err)
	}
	a := &bootTimer{C: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "timerfd")}
	a.wg.Go(a.run)
	return a, nil
}

// run sends the ticks. It ends with close, which waits for it.
func (a *bootTimer) run() {
	for count := make([]byte, 8); ; {
		if _, err := a.file.Read(count); err != nil {
			return
		}
		select {
		case a.C <- struct{}{}:
		default: // the last tick was not read yet
		}
	}
}

// set replaces the time of the tick. A time in the past ticks at once.
func (a *bootTimer) set(at time.Duration) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, at.Nanoseconds()))} // 0 disarms the timer
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

// close stops the timer.
func (a *bootTimer) close() {
	a.file.Close()
	a.wg.Wait()
}
