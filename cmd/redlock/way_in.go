package main

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

// shutOut says what lets a user in who may not open the socket, where err is that.
func shutOut(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, hidden := os.Stat(path); hidden == nil {
		return &reworded{"this user may not open " + rightsOf(path, info) + ": " + wayIn(info), err}
	}
	if folder, info := closedFolder(path); info != nil {
		return &reworded{"this user may not enter " + rightsOf(folder, info) + ": " + wayInto(info), err}
	}
	return err
}

// closedFolder is what keeps this user from even looking at path: of the folders on the
// way there the last one that he can look at, which he may not enter; nil: there is none.
func closedFolder(path string) (folder string, info fs.FileInfo) {
	for folder = filepath.Dir(path); folder != path; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err == nil {
			return folder, info
		}
		path = folder
	}
	return "", nil
}

// The right of the socket's group to open it.
const groupWrite fs.FileMode = 0o020

// rootGroup is the group that nobody should join for that: it is let in to much more.
const rootGroup = 0

// wayIn is what lets a user open a socket that he may not open.
func wayIn(info fs.FileInfo) string {
	if _, gid := ids(info); info.Mode()&groupWrite != 0 && gid != rootGroup {
		return joinGroup(info)
	}
	return "set socket.group and socket.mode in the config, and restart redlockd (where systemd listens: SocketGroup= and SocketMode=, with systemctl edit redlockd.socket); " +
		"where it is redlockd -dev, run this as the user who runs that, " + ownerOf(info)
}

// The right of a folder's group to enter it.
const groupEnter fs.FileMode = 0o010

// wayInto is what lets a user enter a folder that he may not enter.
func wayInto(info fs.FileInfo) string {
	if _, gid := ids(info); info.Mode()&groupEnter != 0 && gid != rootGroup {
		return joinGroup(info)
	}
	return "let this user enter it (where it is that of the service: RuntimeDirectoryMode=, with systemctl edit redlockd); " +
		"where it is redlockd -dev, run this as the user who runs that, " + ownerOf(info)
}

func joinGroup(info fs.FileInfo) string {
	return "join its group (usermod -aG " + groupOf(info) + " USER), and log in again"
}

// rightsOf is for people: "/run/redlockd, which is -rwxr-x---, user redlockd, group redlock".
func rightsOf(path string, info fs.FileInfo) string {
	return fmt.Sprintf("%s, which is %v, %s", path, info.Mode().Perm(), ownersOf(info))
}

// ownersOf is for people: "user root, group redlock".
func ownersOf(info fs.FileInfo) string {
	return fmt.Sprintf("user %s, group %s", ownerOf(info), groupOf(info))
}

func ownerOf(info fs.FileInfo) string {
	uid, _ := ids(info)
	name := strconv.Itoa(uid)
	if owner, err := user.LookupId(name); err == nil {
		return owner.Username
	}
	return name
}

func groupOf(info fs.FileInfo) string {
	_, gid := ids(info)
	name := strconv.Itoa(gid)
	if group, err := user.LookupGroupId(name); err == nil {
		return group.Name
	}
	return name
}

// ids are -1 where the file system has no such thing.
func ids(info fs.FileInfo) (uid, gid int) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}
