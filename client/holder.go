package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Holder is a holder of a lock, as the nodes that store the lock describe it. With Waits it is the
// next holder.
//
// A lock that a foreign Redlock client took has no host, user or pid. Only Who fills in all fields.
// The Holder of an *Error has no Held, Nodes, Slot, KeptFor and Note, and the Holder of Forced has
// no Mode, TTL, Nodes, KeptFor and Note.
type Holder struct {
	Name  string // the lock
	Mode  string // "exclusive" or "shared"
	Slots int    // how many may hold it at once, each in a slot; 0: no slots
	Slot  int    // the slot that is held, from 1
	Host  string
	PID   int
	User  string
	Since time.Duration // how long ago it was taken
	TTL   time.Duration // how long it lasts unless it is extended
	Held  int           // how many nodes store it
	Nodes int           // how many nodes there are
	// KeptFor is how long the lock stays taken at least, whatever its holder does (WithMin). It is
	// known if this daemon's client took it.
	KeptFor time.Duration
	// RetainedFor is for how long at most the daemon that was asked retains the lock, which nobody
	// holds, for the next client of its host (WithRetain); 0: it does not.
	RetainedFor time.Duration
	Note        string // if this daemon's client holds it, and you may see it
	// Waits means that nobody holds the lock, but that it is reserved for this waiter on those
	// nodes, for at most TTL. Nobody else is granted it meanwhile.
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

		KeptFor:     duration(r, "kept"),
		RetainedFor: duration(r, "retained"),
		Waits:       text(r, "waiting") == "yes",
	}
}
