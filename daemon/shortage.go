package daemon

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// What the system can have too little of. It passes: nothing is given up for it but
// what needs it now.
var (
	errNoMoreFDs   = fmt.Errorf("%w: redlockd may open no more files (LimitNOFILE= of its service must be more than limits.connections, and processes with hold=pid)", errShort)
	errNoMoreFiles = fmt.Errorf("%w: too many files are open on this host (fs.file-max)", errShort)
	errNoMemory    = fmt.Errorf("%w: the kernel has no memory for it (MemoryMax= of the service, memory of the host)", errShort)
	errNoWatches   = fmt.Errorf("%w: the user of redlockd may watch no more (fs.epoll.max_user_watches)", errShort)
)

// shortage says of an error of the system what there is too little of; others it
// returns as they are.
func shortage(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return errNoMoreFDs
	case errors.Is(err, syscall.ENFILE):
		return errNoMoreFiles
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS):
		return errNoMemory
	case errors.Is(err, syscall.ENOSPC): // of epoll
		return errNoWatches
	}
	return err
}

// acceptPause is how often it is logged at most that no connection can be accepted:
// who opens connections could fill the log with it.
const acceptPause = time.Minute

// acceptFailed logs that no connection can be accepted; those that there are go on.
func (d *daemon) acceptFailed(err error, pause time.Duration) {
	if !d.acceptLogged.due(d.clock(), acceptPause) {
		return
	}
	d.acceptFails.Store(true)
	d.log.Error("no connection can be accepted for now; those that there are go on", "error", err, "what to do", shortage(err), "next try in", pause,
		"connections", d.limits.Connections())
}

// accepts logs that connections can be accepted again, if it was said that they cannot.
func (d *daemon) accepts() {
	if d.acceptFails.Load() && d.acceptFails.Swap(false) {
		d.log.Info("connections are accepted again", "connections", d.limits.Connections())
	}
}
