package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkSocket looks at the way to the daemon: who may open the socket, and who
// may put another one in its place.
func checkSocket(path string) []finding {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isListenedAt(path):
		return []finding{{"socket", bad, "the socket " + path + " was removed, while somebody listens there: nobody can connect", removedFix}}
	case errors.Is(err, fs.ErrNotExist):
		return []finding{{"socket", bad, "there is no socket " + path, "start redlockd (systemctl start redlockd), or say in REDLOCK_SOCKET where it listens"}}
	case err != nil:
		return []finding{checkWay(path, err)}
	case info.Mode().Type() != fs.ModeSocket:
		return []finding{{"socket", bad, path + " is no socket", "remove it and restart redlockd, or say in REDLOCK_SOCKET where it listens"}}
	}
	findings := append(checkSocketRights(path, info), checkFolder(filepath.Dir(path))...)
	if findings == nil {
		findings = []finding{{"socket", ok, fmt.Sprintf("%s is %v, %s", path, info.Mode().Perm(), ownersOf(info)), ""}}
	}
	return findings
}

// checkWay is of a socket that this user cannot even look at.
func checkWay(path string, err error) finding {
	if folder, info := closedFolder(path); info != nil && errors.Is(err, fs.ErrPermission) {
		return finding{"socket", bad, "this user may not enter " + rightsOf(folder, info), wayInto(info)}
	}
	return finding{"socket", bad, err.Error(), "rights to go there, for this user"}
}

// removedFix: to start what runs does nothing, and redlockd cannot make what is systemd's.
const removedFix = "systemctl restart redlockd.socket redlockd.service (all connections end; what they hold can be resumed for its validity)"

// listening is a flag of sockets in /proc/net/unix (__SO_ACCEPTCON).
const listening = 1 << 16

// isListenedAt tells whether a process has a socket at the path, be it that its file is
// gone, as systemd makes it. (One that redlockd has made is known by another name, and
// whoever starts a second one is told of the first.)
func isListenedAt(path string) bool {
	sockets, _ := os.ReadFile("/proc/net/unix") // without it that is not known
	for line := range strings.Lines(string(sockets)) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.HasSuffix(line, " "+path+"\n") {
			continue
		}
		if flags, _ := strconv.ParseUint(fields[3], 16, 32); flags&listening != 0 {
			return true
		}
	}
	return false
}

// The right of all others to write; to open a socket is to write.
const othersWrite fs.FileMode = 0o002

func checkSocketRights(path string, info fs.FileInfo) (findings []finding) {
	if unix.Access(path, unix.W_OK) != nil {
		findings = append(findings, finding{"socket", bad,
			"this user may not open " + rightsOf(path, info), wayIn(info)})
	}
	if info.Mode()&othersWrite != 0 {
		findings = append(findings, finding{"socket", warning,
			fmt.Sprintf("%s is %v: every user of this host may take locks, unless access rules say otherwise", path, info.Mode().Perm()),
			`mode = "0660" and a group in the socket block of the config`})
	}
	return findings
}

// checkFolder: in a folder that others may write to, one with the sticky bit is safe.
func checkFolder(folder string) []finding {
	info, err := os.Stat(folder)
	if err != nil || info.Mode()&othersWrite == 0 || info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return []finding{{"socket", bad, fmt.Sprintf("%s is %v: any user may put another socket in the place of redlockd's", folder, info.Mode().Perm()),
		"chmod o-w " + folder}}
}
