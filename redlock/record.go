package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Record is all that another process needs to continue a lease ([Quorum.Adopt]), or to release
// the keys that an attempt may have taken ([Quorum.Abandon]). The process must run on the same
// host, since the same boot. A Record is secret, because it contains the token.
//
// Deadline, End and Since are instants on BootTime, which starts again at each boot.
type Record struct {
	Names  []string // of the lock, without Options.Prefix
	Shared bool
	Slots  int    // the number of slots of a semaphore; 0: the lock is not one
	Slot   int    // the slot, from 1 on; 0: the lock is not a semaphore
	Token  string // as stored on the nodes: it begins with the slot, if there is one
	Former string // the token that some nodes may still have instead (Options.TokenChanges); "": none
	Fence  uint64 // 0 for an attempt
	TTL    time.Duration
	Guard  time.Duration // as in Request
	Keep   bool          // as in Request

	Deadline time.Duration // 0 for an attempt, like End and Since
	End      time.Duration // no deadline exceeds it (Request.Max); 0: no bound
	Since    time.Duration // when the lease was granted

	// Grant is the Lease.ID of a grant that a pass made (Lease.HandOver); "": the ID is the
	// random part of the token.
	Grant string

	// Holder is the client that holds the lease. [Quorum.Adopt] needs it for a grant that a pass
	// made: the nodes get a token that names this client. The zero Holder: there is none, or it
	// is unknown. Lease.Record does not set it.
	Holder Holder

	Lost LostReason // why it was lost; "": it is held, as far as known
}

// ID returns the Lease.ID of the record's lease; "": it has no token.
func (r *Record) ID() string {
	if r.Grant != "" {
		return r.Grant
	}
	_, token := splitMember(r.Token)
	return token[:min(tokenID, len(token))]
}

// ErrRecord means that a Record cannot be used. This package did not make it, it does not
// fit the Quorum's options, or it is from another boot.
var ErrRecord = errors.New("bad record")

// record returns a Record with the target's fields only.
func (t *target) record() Record {
	return Record{Names: t.names(), Shared: t.kind == script.KindShared, Slots: script.SlotsOf(t.kind), Slot: int(t.slot)}
}

func (r *Record) invalidError(format string, args ...any) error {
	return fmt.Errorf("redlock: %w: of a lease of %s: %s", ErrRecord, strings.Join(r.Names, ","), fmt.Sprintf(format, args...))
}
