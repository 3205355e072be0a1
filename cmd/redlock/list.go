package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held, or waited for, through this host's daemon",
		Long: `List the locks that are held, or waited for, through this host's daemon, as far
as you may see them. SINCE is for how long. Several names, with commas between them,
are held, or waited for, all or none; a comma that belongs to a name is shown as %2C.

STATE lost: not held any more, but others cannot have it, or not all of it, for TTL.

With --json: [{"lock", "locks", "state": "held", "waiting" or "lost", "mode":
"exclusive" or "shared", "slots", "slot", "pid", "user", "since_ms", "ttl_ms",
"fence", "note"}]. locks has all names, as they are, lock all of them as other
commands take them: with commas between them, and %2C for one that belongs to a name.
slots is how many may hold it at once (0: it is no semaphore), slot which of them
this one is. Times are in milliseconds; 0 is none.

Exit codes: 0; 64 usage; 69 the daemon is not available; 70 internal; 77 denied.`,
		Example: `  redlock list
  redlock list --json | jq -r '.[] | select(.state == "waiting") | .lock'`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := fetchEntries(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), listJSONOf(entries))
			}
			return printEntries(cmd.OutOrStdout(), entries)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func fetchEntries(ctx context.Context) (entries []client.Entry, err error) {
	err = ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		entries, err = c.List(ctx)
		return err
	})
	return entries, err
}

func printEntries(out io.Writer, entries []client.Entry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(out, "nothing is held or waited for, as far as you may see")
		return unwritten(err)
	}
	rows := [][]string{{"LOCK", "STATE", "MODE", "PID", "USER", "SINCE", "TTL", "FENCE", "NOTE"}}
	for _, e := range entries {
		rows = append(rows, []string{
			joinNames(e.Names...), stateOf(e), modeOf(e.Mode, e.Slots, e.Slot), count(uint64(e.PID)), known(e.User),
			short(e.Since), short(e.TTL), count(e.Fence), e.Note,
		})
	}
	return table(out, rows)
}

func stateOf(e client.Entry) string {
	switch {
	case e.Waits:
		return "waiting"
	case e.Lost:
		return "lost"
	}
	return "held"
}

// entryJSON is what list prints for programs. Names are never changed.
type entryJSON struct {
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
}

func listJSONOf(entries []client.Entry) []entryJSON {
	list := []entryJSON{}
	for _, e := range entries {
		list = append(list, entryJSON{
			Lock: joinNames(e.Names...), Locks: e.Names, State: stateOf(e), Mode: e.Mode, Slots: e.Slots, Slot: e.Slot,
			PID: e.PID, User: e.User, Since: e.Since.Milliseconds(), TTL: e.TTL.Milliseconds(),
			Fence: e.Fence, Note: e.Note,
		})
	}
	return list
}
