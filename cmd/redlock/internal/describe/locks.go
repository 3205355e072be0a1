package describe

import (
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

func LocksText(entries []client.Entry) string {
	if len(entries) == 0 {
		return "no lock that you may see is held or waited for\n"
	}
	rows := [][]string{{"LOCK", "STATE", "MODE", "PID", "USER", "SINCE", "TTL", "FENCE", "NOTE"}}
	for _, e := range entries {
		rows = append(rows, []string{
			lockname.Join(e.Names...), lockState(e), Mode(e.Mode, e.Slots, e.Slot), processCell(e.PID, e.Gone), output.OrDash(e.User),
			output.Duration(e.Since), output.Duration(takenFor(e)), output.Count(e.Fence), e.Note,
		})
	}
	return output.Table(rows)
}

// takenFor returns how long other clients cannot have the lock, as far as that is known.
func takenFor(e client.Entry) time.Duration {
	if e.Kept {
		return e.KeptFor
	}
	return e.TTL
}

func lockState(e client.Entry) string {
	switch {
	case e.Waits:
		return "waiting"
	case e.Lost:
		return "lost"
	case e.Kept:
		return "kept"
	}
	return "held"
}

// LockJSON is an element of the document that list prints. Its keys never change.
type LockJSON struct {
	Lock  string   `json:"lock"`
	Locks []string `json:"locks"`
	State string   `json:"state"`
	Mode  string   `json:"mode"`
	Slots int      `json:"slots"`
	Slot  int      `json:"slot"`
	PID   int      `json:"pid"`
	User  string   `json:"user"`
	Since int64    `json:"since_ms"`
	TTL   int64    `json:"ttl_ms"`
	Fence uint64   `json:"fence"`
	Note  string   `json:"note"`
	Kept  int64    `json:"kept_ms,omitempty"`
	Gone  bool     `json:"gone,omitempty"`
}

func LocksToJSON(entries []client.Entry) []LockJSON {
	list := []LockJSON{}
	for _, e := range entries {
		list = append(list, LockJSON{
			Lock: lockname.Join(e.Names...), Locks: e.Names, State: lockState(e), Mode: e.Mode, Slots: e.Slots, Slot: e.Slot,
			PID: e.PID, User: e.User, Since: e.Since.Milliseconds(), TTL: e.TTL.Milliseconds(),
			Fence: e.Fence, Note: e.Note, Kept: e.KeptFor.Milliseconds(), Gone: e.Gone,
		})
	}
	return list
}
