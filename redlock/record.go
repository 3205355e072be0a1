package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Record is all that another process on the same host, since the same boot, needs to go on
// with a lease ([Quorum.Adopt]), or to give back what an attempt may have taken
// ([Quorum.Abandon]). A Record is a secret, because of the token.
//
// Deadline, End and Since are instants on BootTime, which another boot counts anew.
type Record struct {
	Names  []string // of the lock, without Options.Prefix
	Shared bool
	Slots  int    // how many places a semaphore has; 0: it is none
	Slot   int    // which of them it is, from 1 on; 0: it is none
	Token  string // as the nodes keep it: the place goes before it
	Fence  uint64 // of an attempt: 0
	TTL    time.Duration
	Guard  time.Duration // as in Request
	Keep   bool          // as in Request

	Deadline time.Duration // of an attempt: 0, as End and Since are
	End      time.Duration // that no deadline passes (Request.Max); 0: no bound
	Since    time.Duration // the grant

	Lost LostReason // it was lost, and why; "": it is held, as far as is known
}

// ID is Lease.ID of it; "" where there is no token.
func (r *Record) ID() string {
	_, token := splitMember(r.Token)
	return token[:min(tokenID, len(token))]
}

// ErrRecord: a Record is not one that this package made, or not for a Quorum with
// these options, or of another boot.
var ErrRecord = errors.New("bad record")

// record is only what the target is.
func (t *target) record() Record {
	return Record{Names: t.names(), Shared: t.kind == script.KindShared, Slots: script.SlotsOf(t.kind), Slot: int(t.slot)}
}

func (r *Record) bad(format string, args ...any) error {
	return fmt.Errorf("redlock: %w: of a lease of %s: %s", ErrRecord, strings.Join(r.Names, ","), fmt.Sprintf(format, args...))
}
