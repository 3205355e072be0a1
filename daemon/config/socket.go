package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// This file warns about sockets that redlockd could not create on this host. These are not faults:
// the file may be checked on another host, or before an operator creates what is missing.

// WillNotStart is part of each of these warnings. NeverStarts is part of those that stay true whatever
// the service creates at the start.
const (
	WillNotStart = "redlockd will not start"
	NeverStarts  = WillNotStart + " until that is changed"
)

// warnOfPath does not warn about a missing directory of the default path: the service creates it.
func (r *reader) warnOfPath(path string) {
	if r.faulty["socket.path"] {
		return
	}
	at, dir := r.rangeOf("socket.path"), filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path != DefaultSocketPath:
		r.warnf(at, "socket.path: %s does not exist: "+WillNotStart+", unless somebody makes it first, as systemd does (RuntimeDirectory= of the service)", dir)
	case err == nil && !info.IsDir():
		r.warnf(at, "socket.path: %s is not a directory: "+NeverStarts, dir)
	case errors.Is(MayReplace(path), ErrNoSocket):
		r.warnf(at, "socket.path: "+NeverStarts+": %s: %v", path, ErrNoSocket)
	}
}

// warnOfGroup warns about a group that this host does not have. (If systemd opens the socket, it has
// its group already.)
func (r *reader) warnOfGroup(group string) {
	if _, err := strconv.ParseUint(group, 10, 32); group == "" || err == nil {
		return
	}
	if _, err := user.LookupGroup(group); err != nil {
		r.warnf(r.rangeOf("socket.group"), "socket.group: this host has no group %q: "+WillNotStart+", unless systemd opens the socket; to create it: groupadd --system %s", group, group)
	}
}

// ErrNoSocket is the error of [MayReplace] for a path that has a file other than a socket.
var ErrNoSocket = errors.New("something other than a socket is at this path: move it away")

// MayReplace returns an error if there is a file other than a socket at the path.
func MayReplace(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return ErrNoSocket
	}
	return nil
}

// CheckGroup returns an error with advice if this host does not know the group.
func (cfg *Socket) CheckGroup() error {
	if cfg.Group == "" {
		return nil
	}
	_, err := GroupID(cfg.Group)
	return err
}

// GroupID returns the id of a group, by name or number.
func GroupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil {
		return gid, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("group %q of the socket: %w (create it with: groupadd --system %s)", group, err, group)
	}
	return strconv.Atoi(found.Gid)
}

// Differences returns how a socket that the service manager made differs from the
// config.
func (cfg *Socket) Differences(path string) (found []string) {
	if path != cfg.Path {
		return []string{fmt.Sprintf("socket.path is %s, found %s", cfg.Path, path)}
	}
	info, err := os.Stat(path)
	if err != nil {
		return []string{fmt.Sprintf("clients cannot find it: %v", err)}
	}
	if got := info.Mode().Perm(); got != cfg.Mode.Perm() {
		found = append(found, fmt.Sprintf("socket.mode is %#o, found %#o", cfg.Mode.Perm(), got))
	}
	if difference := cfg.groupDifference(info); difference != "" {
		found = append(found, difference)
	}
	return found
}

func (cfg *Socket) groupDifference(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if cfg.Group == "" || !ok {
		return ""
	}
	switch gid, err := GroupID(cfg.Group); {
	case err != nil:
		return err.Error()
	case gid != int(stat.Gid):
		return fmt.Sprintf("socket.group is %s (%d), found %d", cfg.Group, gid, stat.Gid)
	}
	return ""
}
