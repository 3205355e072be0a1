package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// onDisk is a variable for tests.
var onDisk = isOnDisk

// checkStateFile warns of a state file on a disk: a slow disk delays every answer and LOST. It
// finds nothing if there is no state file, as with -dev, or if this user cannot see it.
func checkStateFile(socket string) []Finding {
	if !hasStateFile(socket) || !onDisk(filepath.Dir(socket)) {
		return nil
	}
	return []Finding{{"table", Warning, "redlockd's state file, beside its socket, is on a disk: while the disk is slow, redlockd hangs, and LOST may come after a deadline",
		"put the socket on a tmpfs, as /run is"}}
}

// hasStateFile reports whether redlockd has a state file for the socket. Its name ends with
// a number, as in redlockd.sock.table.N.
func hasStateFile(socket string) bool {
	entries, _ := os.ReadDir(filepath.Dir(socket)) // none if the directory cannot be read
	for _, entry := range entries {
		number, is := strings.CutPrefix(entry.Name(), filepath.Base(socket)+".table.")
		if _, err := strconv.ParseUint(number, 10, 64); is && err == nil {
			return true
		}
	}
	return false
}
