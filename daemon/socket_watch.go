package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
)

// socketInterval is how often the daemon looks whether clients still find its socket.
const socketInterval = time.Second

// watch binds the socket again if its file is removed, until ctx ends: a cleanup job or another unit
// may remove it, and nobody could connect. Present connections go on. It logs one warning for each
// removal.
func (s *socket) watch(ctx context.Context, d *daemon) {
	tick := time.NewTicker(socketInterval)
	defer tick.Stop()
	var logged socketNews
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		news := s.check(&d.Cfg.Socket)
		if news != logged {
			s.warn(d.Log, news)
		}
		if logged = news; news.event == boundAgain {
			logged = socketNews{} // the next one is about another removal
		}
	}
}

// socketNews is what happened to the socket; zero: nothing.
type socketNews struct {
	event  socketEvent
	reason string // of cannotBind
}

type socketEvent int

const (
	socketInPlace     socketEvent = iota
	boundAgain                    // it was removed
	cannotBind                    // it was removed
	foreignFile                   // another file is at its path
	unitSocketRemoved             // the service manager made it
	unitSocketForeign             // the same, and another file is at its path
)

const fixUnitSocket = "systemctl restart redlockd.socket redlockd.service: all connections end, and their leases can be resumed until their deadline"

// warn logs what happened to the socket.
func (s *socket) warn(log hclog.Logger, news socketNews) {
	path := s.claim.path
	switch news.event {
	case boundAgain:
		log.Warn("the socket was removed, and is bound again: clients could not connect for up to a second", "socket", path,
			"fix", "find out what removed it: a cleanup of old files, or another unit with the same RuntimeDirectory=")
	case cannotBind:
		log.Warn("the socket was removed, and cannot be bound again: no client can connect", "socket", path,
			"fix", "make its directory, and let the user of redlockd write there (systemd-tmpfiles --create)", "error", news.reason)
	case foreignFile:
		log.Warn("another file is at the path of the socket: no client can connect", "socket", path,
			"fix", "find out which program made it, and remove it: redlockd then binds its socket again")
	case unitSocketRemoved:
		log.Warn("the socket of the service manager was removed: no client can connect", "socket", path, "fix", fixUnitSocket)
	case unitSocketForeign:
		log.Warn("another file is at the path of the service manager's socket: no client can connect", "socket", path, "fix", fixUnitSocket)
	}
}

// check binds the socket again if its file is gone. It returns what it did, or what is wrong.
func (s *socket) check(cfg *config.Socket) socketNews {
	if s.claim.path == "" || s.claim.path[0] != '/' || s.isInPlace() { // an abstract socket of the service manager has no file
		return socketNews{}
	}
	_, err := os.Lstat(s.claim.path)
	isGone := errors.Is(err, fs.ErrNotExist)
	switch {
	case !s.isOurs && isGone:
		return socketNews{event: unitSocketRemoved}
	case !s.isOurs:
		return socketNews{event: unitSocketForeign}
	case !isGone:
		return socketNews{event: foreignFile}
	}
	if err := s.bindAgain(cfg); err != nil {
		return socketNews{cannotBind, err.Error()}
	}
	return socketNews{event: boundAgain}
}

// bindAgain replaces the listener by one that is bound to the path. Clients that have connected to the
// earlier one were accepted: nobody can have connected since the file is gone.
func (s *socket) bindAgain(cfg *config.Socket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isPassed {
		return nil
	}
	if err := s.lockAgainLocked(); err != nil {
		return err
	}
	bound := *cfg
	bound.Path = s.claim.path
	listener, err := bindSocket(&bound)
	if err != nil {
		return err
	}
	file, err := os.Lstat(s.claim.path)
	if err != nil {
		listener.Close()
		return err
	}
	earlier := s.listener
	s.listener, s.file = listener, file
	earlier.Close() // serve goes on with the new one
	return nil
}

// lockAgainLocked locks the lock file again if it was removed, too. The caller holds mu.
func (s *socket) lockAgainLocked() error {
	held, err := s.claim.lock.Stat()
	if err != nil {
		return err
	}
	if file, err := os.Lstat(s.claim.path + ".lock"); err == nil && os.SameFile(file, held) {
		return nil
	}
	lock, err := openLockFile(s.claim.path)
	if err != nil {
		return err
	}
	s.claim.lock.Close()
	s.claim.lock = lock
	return nil
}
