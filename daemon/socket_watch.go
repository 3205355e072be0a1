package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

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
		if news != logged && news != (socketNews{}) {
			values := []any{"socket", s.claim.path, "fix", news.fix}
			if news.reason != "" {
				values = append(values, "error", news.reason)
			}
			warn := d.Log.Warn // each text is a constant of check
			warn(news.text, values...)
		}
		if logged = news; news.text == textBoundAgain {
			logged = socketNews{} // the next one is about another removal
		}
	}
}

// socketNews is a warning about the socket; zero: none.
type socketNews struct{ text, fix, reason string }

const textBoundAgain = "the socket was removed, and is bound again: clients could not connect for up to a second"

const (
	fixSocketFolder = "make its directory, and let the user of redlockd write there (systemd-tmpfiles --create)"
	fixForeignFile  = "find out which program made it, and remove it: redlockd then binds its socket again"
	fixRemovals     = "find out what removed it: a cleanup of old files, or another unit with the same RuntimeDirectory="
	fixUnitSocket   = "systemctl restart redlockd.socket redlockd.service: all connections end, and their leases can be resumed until their deadline"
)

// check binds the socket again if its file is gone. It returns what it did, or what is wrong.
func (s *socket) check(cfg *config.Socket) socketNews {
	if s.claim.path == "" || s.claim.path[0] != '/' || s.isInPlace() { // an abstract socket of the service manager has no file
		return socketNews{}
	}
	_, err := os.Lstat(s.claim.path)
	isGone := errors.Is(err, fs.ErrNotExist)
	switch {
	case !s.isOurs && isGone:
		return socketNews{text: "the socket of the service manager was removed: no client can connect", fix: fixUnitSocket}
	case !s.isOurs:
		return socketNews{text: "another file is at the path of the service manager's socket: no client can connect", fix: fixUnitSocket}
	case !isGone:
		return socketNews{text: "another file is at the path of the socket: no client can connect", fix: fixForeignFile}
	}
	if err := s.bindAgain(cfg); err != nil {
		return socketNews{"the socket was removed, and cannot be bound again: no client can connect", fixSocketFolder, err.Error()}
	}
	return socketNews{text: textBoundAgain, fix: fixRemovals}
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
