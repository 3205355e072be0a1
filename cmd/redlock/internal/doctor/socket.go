package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// checkSocket checks which users may open the socket, and which could replace it.
func checkSocket(path string) []Finding {
	info, err := os.Stat(path)
	switch {
	case strings.Contains(path, "://"):
		return []Finding{{"socket", Bad, path + " is a URL, and redlockd listens on a Unix socket of this host", "set REDLOCK_SOCKET (or --socket) to the path of the socket"}}
	case errors.Is(err, fs.ErrNotExist) && isListenedAt(path):
		return []Finding{{"socket", Bad, "the socket " + path + " was removed while a process listens there: no client can connect", fixRemovedSocket}}
	case errors.Is(err, fs.ErrNotExist):
		return []Finding{{"socket", Bad, "there is no socket " + path, socket.HowToReach()}}
	case err != nil:
		return []Finding{unreachableSocket(path, err)}
	case info.Mode().Type() != fs.ModeSocket:
		kind := "file of another kind"
		if info.Mode().IsRegular() {
			kind = "regular file"
		} else if info.IsDir() {
			kind = "directory"
		}
		return []Finding{{"socket", Bad, path + " is a " + kind + ", not a socket", "set REDLOCK_SOCKET to the socket of a running redlockd; if a config of redlockd names this path, move the file away and restart redlockd"}}
	}
	findings := append(checkSocketPermissions(path, info), checkFolder(filepath.Dir(path))...)
	if findings == nil {
		findings = []Finding{{"socket", OK, fmt.Sprintf("%s is %v, %s", path, info.Mode().Perm(), socket.Owners(info)), ""}}
	}
	return findings
}

// unreachableSocket explains a socket that this user cannot stat.
func unreachableSocket(path string, err error) Finding {
	if folder, info := socket.ClosedFolder(path); info != nil && errors.Is(err, fs.ErrPermission) {
		return Finding{"socket", Bad, "this user may not enter " + socket.Permissions(folder, info), socket.HowToEnter(info)}
	}
	return Finding{"socket", Bad, err.Error(), "give this user the right to enter it"}
}

// fixRemovedSocket restarts both units: a start would do nothing, and redlockd cannot create the
// socket of systemd. A redlockd that created its socket itself binds it again.
const fixRemovedSocket = "if systemd made it: systemctl restart redlockd.socket redlockd.service (all connections end; their leases can be resumed until their deadline); " +
	"otherwise redlockd binds it again within a second, or its log says why not"

// listening is a flag of sockets in /proc/net/unix (__SO_ACCEPTCON).
const listening = 1 << 16

// isListenedAt reports whether a process listens on a socket that was bound to path, even if
// its file was removed.
func isListenedAt(path string) bool {
	sockets, _ := os.ReadFile("/proc/net/unix") // without it no listener is found
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

// othersWrite is write permission for all other users, which connecting to a socket requires.
const othersWrite fs.FileMode = 0o002

func checkSocketPermissions(path string, info fs.FileInfo) (findings []Finding) {
	if unix.Access(path, unix.W_OK) != nil {
		findings = append(findings, Finding{"socket", Bad,
			"this user may not open " + socket.Permissions(path, info), socket.HowToOpen(info)})
	}
	if info.Mode()&othersWrite != 0 {
		findings = append(findings, Finding{"socket", Warning,
			fmt.Sprintf("%s is %v: every user of this host may take locks, unless access rules say otherwise", path, info.Mode().Perm()),
			`mode = "0660" and a group in the socket block of the config`})
	}
	return findings
}

// checkFolder checks the directory of the socket. If other users may write to it, the sticky
// bit must be set.
func checkFolder(folder string) []Finding {
	info, err := os.Stat(folder)
	if err != nil || info.Mode()&othersWrite == 0 || info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return []Finding{{"socket", Bad, fmt.Sprintf("%s is %v: any user may replace redlockd's socket", folder, info.Mode().Perm()),
		"chmod o-w " + folder}}
}
