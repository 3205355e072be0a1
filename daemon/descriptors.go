package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/metrics"
)

// Each client takes a descriptor, and so does each process with hold=pid. As many as these
// are kept from them: without one a node that comes back could not be connected to, and
// every lock would be lost for want of what those who have them do not need.
const (
	keptPerNode = 4  // its two connections, while those before them end
	keptBesides = 16 // certificates, passwords, the table's next file, /proc
)

var errKept = fmt.Errorf("%w: those that are left are kept for the nodes", unix.EMFILE)

// mayTakeDescriptor is an error where clients have all that are theirs.
func (d *daemon) mayTakeDescriptor() error {
	if descriptorsLeft() < d.keptDescriptors() {
		return errKept
	}
	return nil
}

// keptDescriptors are how many clients do not get: those of the nodes, and of whoever may
// connect for metrics, which would else be taken from these.
func (d *daemon) keptDescriptors() int {
	kept := keptPerNode*len(d.cfg.Quorum.Nodes) + keptBesides
	if d.cfg.Metrics != nil {
		kept += metrics.MaxConnections
	}
	return kept
}

// descriptorsLeft is how many lie above the lowest that is free: no more are left, and
// clients have none of the last ones. Where the system does not tell, there are plenty.
func descriptorsLeft() int {
	const plenty = 1 << 30
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return plenty
	}
	lowest, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0) // Go sees to it that 0 is open
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.EINVAL): // the latter where there may be none at all
		return 0
	case err != nil:
		return plenty
	}
	unix.Close(lowest)
	return int(min(uint64(limit.Cur), plenty)) - lowest
}
