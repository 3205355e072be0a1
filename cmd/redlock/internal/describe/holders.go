package describe

import (
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// KeptFor names the waiter that the nodes keep a free lock for.
func KeptFor(h client.Holder) string {
	return fmt.Sprintf("kept for %s, which waited and is next", HolderName(&h))
}

// HolderName names a holder, with the pid if its daemon sees the process.
func HolderName(h *client.Holder) string {
	who := output.Cell(output.OrDash(h.User)) + " on " + output.Cell(h.Host)
	if h.PID == 0 {
		return who
	}
	return fmt.Sprintf("%s (pid %d)", who, h.PID)
}

// HolderSentence describes a holder in a sentence.
func HolderSentence(h client.Holder) string {
	mode := Mode(h.Mode, h.Slots, h.Slot)
	if h.Host == "" {
		return fmt.Sprintf("another Redlock client, which does not identify itself (%s)", mode)
	}
	var process string
	if h.PID != 0 { // 0: its daemon does not see the process
		process = fmt.Sprintf("pid %d, ", h.PID)
	}
	return fmt.Sprintf("%s on %s (%s%s, for %s)", output.Cell(h.User), output.Cell(h.Host), process, mode, output.OrDash(output.Duration(h.Since)))
}

func HoldersText(holders []client.Holder) string {
	if len(holders) == 0 {
		return "free\n"
	}
	noted := slices.ContainsFunc(holders, func(h client.Holder) bool { return h.Note != "" })
	rows := [][]string{{"HOST", "PID", "USER", "MODE", "SINCE", "TTL", "HELD"}}
	for _, h := range holders {
		rows = append(rows, []string{
			output.OrDash(h.Host), processCell(h.PID, h.Gone), output.OrDash(h.User), holderMode(h), output.Duration(h.Since), output.Duration(h.TTL),
			fmt.Sprintf("%d/%d", h.Held, h.Nodes),
		})
		if noted {
			rows[len(rows)-1] = append(rows[len(rows)-1], h.Note)
		}
	}
	if noted {
		rows[0] = append(rows[0], "NOTE")
	}
	return output.Table(rows)
}

// processCell is a pid. gone means that the process is known to have ended.
func processCell(pid int, gone bool) string {
	cell := output.Count(uint64(pid))
	if gone {
		cell += " (gone)"
	}
	return cell
}

func holderMode(h client.Holder) string {
	if h.Waits {
		return "next"
	}
	return Mode(h.Mode, h.Slots, h.Slot)
}

// Mode says how a lock is held or requested.
func Mode(mode string, slots, slot int) string {
	switch {
	case slots == 0:
		return output.OrDash(mode)
	case slot == 0:
		return fmt.Sprintf("1 of %d slots", slots)
	}
	return fmt.Sprintf("slot %d of %d", slot, slots)
}

type HolderJSON struct {
	Mode  string `json:"mode"`
	Slots int    `json:"slots"`
	Slot  int    `json:"slot"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	User  string `json:"user"`
	Since int64  `json:"since_ms"`
	TTL   int64  `json:"ttl_ms"`
	Held  int    `json:"held"`
	Nodes int    `json:"nodes"`
	Note  string `json:"note,omitempty"`
	Kept  int64  `json:"kept_ms,omitempty"`
	Gone  bool   `json:"gone,omitempty"`
	Next  bool   `json:"next,omitempty"`
}

func HoldersToJSON(holders []client.Holder) []HolderJSON {
	list := []HolderJSON{}
	for _, h := range holders {
		list = append(list, HolderJSON{
			Mode: h.Mode, Slots: h.Slots, Slot: h.Slot, Host: h.Host, PID: h.PID, User: h.User,
			Since: h.Since.Milliseconds(), TTL: h.TTL.Milliseconds(), Held: h.Held, Nodes: h.Nodes, Note: h.Note, Kept: h.KeptFor.Milliseconds(), Gone: h.Gone, Next: h.Waits,
		})
	}
	return list
}
