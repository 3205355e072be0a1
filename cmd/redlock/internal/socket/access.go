package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// explainDenied adds how the user gets access, if err means that they may not open the socket.
func explainDenied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, hidden := os.Stat(path); hidden == nil {
		return exit.Reword(err, "this user may not open "+Permissions(path, info)+": "+HowToOpen(info))
	}
	if folder, info := ClosedFolder(path); info != nil {
		return exit.Reword(err, "this user may not enter "+Permissions(folder, info)+": "+HowToEnter(info))
	}
	return err
}

// ClosedFolder returns the last directory on the way to path that this user can stat, if they may
// not enter it. Otherwise info is nil.
func ClosedFolder(path string) (folder string, info fs.FileInfo) {
	for folder = filepath.Dir(path); folder != path; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err == nil {
			return folder, info
		}
		path = folder
	}
	return "", nil
}

// groupWrite lets the socket's group open it.
const groupWrite fs.FileMode = 0o020

// rootGroup is never recommended: its members get access to much more.
const rootGroup = 0

// HowToOpen says how a user gets the right to open the socket.
func HowToOpen(info fs.FileInfo) string {
	if _, gid := ownerIDs(info); info.Mode()&groupWrite != 0 && gid != rootGroup {
		return joinGroup(info)
	}
	return "set socket.group and socket.mode in the config, and restart redlockd (if systemd listens: SocketGroup= and SocketMode=, with systemctl edit redlockd.socket); " +
		"with redlockd -dev, run this as its user, " + owner(info)
}

// groupEnter lets a directory's group enter it.
const groupEnter fs.FileMode = 0o010

// HowToEnter says how a user gets the right to enter a directory.
func HowToEnter(info fs.FileInfo) string {
	if _, gid := ownerIDs(info); info.Mode()&groupEnter != 0 && gid != rootGroup {
		return joinGroup(info)
	}
	return "let this user enter it (if it belongs to the service: RuntimeDirectoryMode=, with systemctl edit redlockd); " +
		"with redlockd -dev, run this as its user, " + owner(info)
}

func joinGroup(info fs.FileInfo) string {
	return "join its group (usermod -aG " + group(info) + " USER), and log in again"
}

// Permissions formats the mode and owners: "/run/redlockd, which is -rwxr-x---, user redlockd,
// group redlock".
func Permissions(path string, info fs.FileInfo) string {
	return fmt.Sprintf("%s, which is %v, %s", path, info.Mode().Perm(), Owners(info))
}

// Owners formats the owners: "user root, group redlock".
func Owners(info fs.FileInfo) string {
	return fmt.Sprintf("user %s, group %s", owner(info), group(info))
}

func owner(info fs.FileInfo) string {
	uid, _ := ownerIDs(info)
	name := strconv.Itoa(uid)
	if owner, err := user.LookupId(name); err == nil {
		return owner.Username
	}
	return name
}

func group(info fs.FileInfo) string {
	_, gid := ownerIDs(info)
	name := strconv.Itoa(gid)
	if group, err := user.LookupGroupId(name); err == nil {
		return group.Name
	}
	return name
}

// ownerIDs returns -1 if the file system has no owners.
func ownerIDs(info fs.FileInfo) (uid, gid int) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}
