package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Watcher calls a function when a process ends. It waits in Go's poller, as connections do, so it
// blocks no thread.
type Watcher struct {
	file *os.File // of epoll
	raw  syscall.RawConn
	fd   int
	done sync.WaitGroup // for the goroutine of run; Stop waits for it

	mu      sync.Mutex     // guards the fields below; no other mutex is taken inside
	ended   map[int]func() // by pidfd
	stopped bool           // fd may be a descriptor of another file by now
}

// NewWatcher makes a Watcher, which runs until Stop.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // needed by Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	w := &Watcher{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, ended: map[int]func(){}}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	w.done.Go(w.run)
	return w, nil
}

// Stop ends watching, and waits until no callback runs.
func (w *Watcher) Stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.file.Close() // it cannot fail: nothing was written
	w.done.Wait()
}

// Watch calls ended once, on the goroutine of the Watcher, when the process of a pidfd has ended.
// The caller keeps the pidfd open until then, or until after Unwatch.
func (w *Watcher) Watch(fd int, ended func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return fmt.Errorf("epoll: %w", os.ErrClosed)
	}
	err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	w.ended[fd] = ended
	return nil
}

// Unwatch ends the watch of a pidfd. It has no effect after the callback began.
func (w *Watcher) Unwatch(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(fd)
}

// remove requires w.mu. EPOLL_CTL_DEL cannot fail for a pidfd that was added and is open.
func (w *Watcher) remove(fd int) (ended func()) {
	if ended = w.ended[fd]; ended != nil {
		delete(w.ended, fd)
	}
	if ended != nil && !w.stopped {
		unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil)
	}
	return ended
}

// run calls the functions of ended processes until Stop.
func (w *Watcher) run() {
	for fds, open := w.wait(); open; fds, open = w.wait() {
		for _, fd := range fds {
			if ended := w.takeEnded(fd); ended != nil {
				ended()
			}
		}
	}
}

// takeEnded returns the callback of a pidfd that epoll reported. The number may be of another pidfd
// by now, so it checks whether the process has ended.
func (w *Watcher) takeEnded(fd int) (ended func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended[fd] == nil || IsAlive(fd) {
		return nil
	}
	return w.remove(fd)
}

// wait returns pidfds of processes that have ended, or false after Stop.
func (w *Watcher) wait() (fds []int, open bool) {
	var events [128]unix.EpollEvent
	var n int
	var failed error
	closed := w.raw.Read(func(fd uintptr) bool {
		n, failed = unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	if closed != nil || failed != nil {
		return nil, false
	}
	for _, event := range events[:n] {
		fds = append(fds, int(event.Fd))
	}
	return fds, true
}
