package daemon

import (
	"fmt"
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc/server"
)

// processes are those whose lives hold leases (hold=pid), or are to hold them. Each
// is watched through one pidfd, and all of these by one goroutine. A number stands
// for a process only as long as that lives: whoever is looked up by a number is
// looked at, so that the next process with the same one is never taken for it.
type processes struct {
	ended func(*holding) // is called for each lease of a process that has ended

	mu      sync.Mutex // guards what follows, and what of a process is said to be its
	watcher watcher
	byPID   map[int]*process
	byFD    map[int]*process
}

// process is one that is watched.
type process struct {
	pid     int
	started time.Duration // BootTime, as facts say; 0: not known
	desk    desk          // of what it holds
	gone    chan struct{} // closed when it has ended

	// Guarded by the processes' mu.
	fd    int
	users int  // LOCKs under way, and leases; when there are none left the watch ends
	over  bool // it is not watched any more
}

func newProcesses(ended func(*holding)) *processes {
	return &processes{ended: ended, byPID: map[int]*process{}, byFD: map[int]*process{}}
}

// hasEnded is false for nil, which is nobody.
func (p *process) hasEnded() bool { return p != nil && isClosed(p.gone) }

// endedError is the answer to a LOCK whose process has ended.
func (p *process) endedError() error { return processEnded(p.pid) }

// processEnded is server.ErrCancelled, but not by the client.
type processEnded int

func (pid processEnded) Error() string {
	return fmt.Sprintf("process %d, which was to hold it, has ended", int(pid))
}

func (processEnded) Is(target error) bool { return target == server.ErrCancelled }

// watch begins to watch. What it returns ends that, and waits until nothing runs.
func (t *processes) watch() (stop func(), err error) {
	w, err := newWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching processes (hold=pid): %w", err)
	}
	t.mu.Lock()
	t.watcher = w
	t.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() { t.run(w) })
	return func() {
		w.close()
		done.Wait()
		t.closeAll()
	}, nil
}

// run ends the leases of processes that end, until the watcher is closed.
func (t *processes) run(w watcher) {
	for fds, open := w.wait(); open; fds, open = w.wait() {
		for _, fd := range fds {
			t.end(fd)
		}
	}
}

// end is for what the watcher says of a pidfd: it may be another's by now.
func (t *processes) end(fd int) {
	t.mu.Lock()
	p := t.byFD[fd]
	if p == nil || isAlive(fd) {
		t.mu.Unlock()
		return
	}
	t.drop(p)
	t.mu.Unlock()
	close(p.gone)
	for _, h := range p.desk.close() {
		t.ended(h)
	}
}

// use has a process watched until release is called as often as use and keep. The
// pidfd is of the process that has or had the number pid; use closes it if the
// process is watched already.
func (t *processes) use(fd, pid int) (*process, error) {
	var started time.Duration
	if t.find(pid) == nil {
		started = startOf(pid) // not with mu: it reads files. That it is this process's is seen below
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isAlive(fd) {
		closeFD(fd)
		return nil, errNoProcess
	}
	if p := t.living(pid); p != nil { // both live now: there is but one with that number
		closeFD(fd)
		p.users++
		return p, nil
	}
	if err := t.watcher.add(fd); err != nil {
		closeFD(fd)
		return nil, err
	}
	p := &process{pid: pid, started: started, gone: make(chan struct{}), fd: fd, users: 1}
	t.byPID[pid], t.byFD[fd] = p, p
	return p, nil
}

// startOf is when the process that has the number was started; 0 where that is not
// to be seen.
func startOf(pid int) time.Duration {
	f, err := factsOf(pid)
	if err != nil {
		return 0
	}
	return f.started
}

// keep is one user more, beside one that there is.
func (t *processes) keep(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.users++
}

// release ends what use or keep began. Nil is nobody.
func (t *processes) release(p *process) {
	if p == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.users--; p.users == 0 && !p.over {
		t.drop(p)
	}
}

// find is the process that lives and has this number; nil if it is not watched.
func (t *processes) find(pid int) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.living(pid)
}

// living needs mu.
func (t *processes) living(pid int) *process {
	if p := t.byPID[pid]; p != nil && isAlive(p.fd) {
		return p
	}
	return nil
}

// drop ends the watch. The number may be another's already. It needs mu.
func (t *processes) drop(p *process) {
	p.over = true
	if t.byPID[p.pid] == p {
		delete(t.byPID, p.pid)
	}
	delete(t.byFD, p.fd)
	t.watcher.remove(p.fd)
	closeFD(p.fd)
}

// closeAll closes what is still watched: the daemon stops.
func (t *processes) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byFD {
		t.drop(p)
	}
}

// processEnded gives back what a process held that has ended. What was lost before
// nobody can ask about any more, but for LIST.
func (d *daemon) processEnded(h *holding) {
	if h.lease.Err() != nil {
		if !d.stopping.Load() {
			h.stopped()
		}
		d.unregisterLost(h)
		d.unlist(h)
		return
	}
	d.giveBackAfterLinger(h)
}
