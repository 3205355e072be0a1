package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// explainDenied adds how the user gets access, if err means that they may not open the socket.
func explainDenied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, hidden := os.Stat(path); hidden == nil {
		if modeAllows(info) {
			return exit.Reword(err, "this user may open "+Permissions(path, info)+", by its mode, so SELinux, AppArmor or another rule denies it: "+securityAdvice)
		}
		return exit.Reword(err, "this user may not open "+Permissions(path, info)+": "+HowToOpen(info))
	}
	if folder, info := ClosedFolder(path); info != nil {
		return exit.Reword(err, "this user may not enter "+Permissions(folder, info)+": "+HowToEnter(info))
	}
	return err
}

// securityAdvice says where a security module writes what it denied.
const securityAdvice = "ausearch -m avc -ts recent (SELinux), or journalctl -k -g DENIED (AppArmor), says which"

// modeAllows reports whether the mode lets this user write to a file, as a connection to a socket needs.
func modeAllows(info fs.FileInfo) bool {
	const ownerWrite, othersWrite = 0o200, 0o002
	uid, _ := ownerIDs(info)
	return info.Mode()&othersWrite != 0 || uid == os.Geteuid() && info.Mode()&ownerWrite != 0
}

// overflowID is the number that the kernel shows for a user or group without a number in this user
// namespace.
const overflowID = 65534

// isUnmapped reports whether the owner or the group has no number here, as in a rootless container.
func isUnmapped(info fs.FileInfo) bool {
	uid, gid := ownerIDs(info)
	if uid != overflowID && gid != overflowID {
		return false
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
}

// unmappedAdvice is for a process in a user namespace.
const unmappedAdvice = "its owner has no number in this user namespace (a rootless container): on the host, let the user that runs the container open it by its group, and keep that group here " +
	"(podman run --group-add keep-groups), or set socket.mode = \"0666\" in the config"

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
	if isUnmapped(info) {
		return unmappedAdvice
	}
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
	if isUnmapped(info) {
		return unmappedAdvice
	}
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
