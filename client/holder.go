package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Holder is a holder of a lock, as the nodes that store the lock describe it. If Waits is set, it
// is the next holder.
//
// A lock that a foreign Redlock client took has no host, user or pid. Only Who fills in all fields.
// The Holder of an *Error has no Held, Nodes, Slot, KeptFor, Gone or Note. The Holder of Forced has no
// Mode, TTL, Nodes, KeptFor, Gone or Note.
type Holder struct {
	Name  string // the lock
	Mode  string // "exclusive" or "shared"
	Slots int    // how many clients may hold it at once, each in a slot; 0: no slots
	Slot  int    // the slot that is held, from 1
	Host  string
	PID   int
	User  string
	Since time.Duration // how long ago it was taken
	TTL   time.Duration // how long it lasts unless it is extended
	Held  int           // how many nodes store it
	Nodes int           // how many nodes there are
	// KeptFor is how long the lock stays taken at least, even if its holder releases it (WithMin).
	// It is known only to the daemon that granted the lock.
	KeptFor time.Duration
	// Gone means that the process PID ended while its redlockd, this daemon, was down. The lock stays
	// taken for at most TTL, because another process may resume the lease.
	Gone bool
	Note string // if a client of this daemon holds the lock, and this user may see the note
	// Waits means that no client holds the lock, but those nodes keep it for this waiter, for at
	// most TTL. No other client is granted it meanwhile.
	Waits bool
}

func holderOf(r *ipc.Response) Holder {
	return Holder{
		Name:  text(r, "lock"),
		Mode:  text(r, "mode"),
		Slots: int(number(r, "slots")),
		Slot:  int(number(r, "slot")),
		Host:  text(r, "host"),
		PID:   int(number(r, "pid")),
		User:  text(r, "user"),
		Since: duration(r, "since"),
		TTL:   duration(r, "ttl"),
		Held:  int(number(r, "held")),
		Nodes: int(number(r, "nodes")),
		Note:  text(r, "note"),

		KeptFor: duration(r, "kept"),
		Gone:    text(r, "gone") == "yes",
		Waits:   text(r, "waiting") == "yes",
	}
}
