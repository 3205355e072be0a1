package main

import "github.com/redlockd/redlockd/daemon/state/statefile"

// onDisk is another one in tests.
var onDisk = statefile.OnDisk

// checkMedium: what redlockd notes on a disk waits for that, and so does LOST. It finds
// nothing where there is no table, as with -dev, or where this user sees none.
func checkMedium(socket string) []finding {
	if at := statefile.Beside(socket); !statefile.Exists(at) || !onDisk(at) {
		return nil
	}
	return []finding{{"table", warning, "redlockd's table, beside its socket, is on a disk: while that is slow redlockd stands still, and LOST may come after a deadline",
		"have the socket in a directory of memory (tmpfs), as /run is"}}
}
