package client

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Holder is who holds a lock, as told by those nodes that a lock is held on, or who is
// to have it next (Waits).
// What a foreign Redlock client left there has no host, user or pid. Only Who tells
// all of it: the Holder of an *Error has no Held, Nodes, Slot and Note, and that of Forced
// no Mode, TTL, Nodes and Note.
type Holder struct {
	Name  string // the lock
	Mode  string // "exclusive" or "shared"
	Slots int    // how many may hold it at once, each in a slot; 0: it has none
	Slot  int    // which one is held, from 1
	Host  string
	PID   int
	User  string
	Since time.Duration // how long ago it was taken
	TTL   time.Duration // how long it lasts unless it is extended
	Held  int           // on so many nodes
	Nodes int           // of so many
	Note  string        // where it is held through this daemon, and you may see it
	// Waits: nobody holds the lock. It is kept for him on those nodes, who has waited for it,
	// for TTL at most: nobody else is granted it.
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
		Waits: text(r, "waiting") == "yes",
	}
}
