package daemon

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// This file warns of sockets that redlockd could not make here. These are no faults: the
// file may be checked on another host, or before somebody makes what is missing.

// warnOfPath expects of the default's directory that it comes with the service.
func (r *configReader) warnOfPath(path string) {
	if r.bad["socket.path"] {
		return
	}
	at, dir := r.rangeOf("socket.path"), filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path != DefaultSocketPath:
		r.warnf(at, "socket.path: %s does not exist: redlockd will not start, unless somebody makes it first, as systemd does (RuntimeDirectory= of the service)", dir)
	case err == nil && !info.IsDir():
		r.warnf(at, "socket.path: %s is not a directory: redlockd will not start", dir)
	case errors.Is(mayReplace(path), errNoSocket):
		r.warnf(at, "socket.path: redlockd will not start: %s: %v", path, errNoSocket)
	}
}

// warnOfGroup: a socket that systemd has opened has its group already.
func (r *configReader) warnOfGroup(group string) {
	if _, err := strconv.ParseUint(group, 10, 32); group == "" || err == nil {
		return
	}
	if _, err := user.LookupGroup(group); err != nil {
		r.warnf(r.rangeOf("socket.group"), "socket.group: this host has no group %q: redlockd will not start, unless systemd opens the socket; to create it: groupadd --system %s", group, group)
	}
}
