package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newWhoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "who NAME",
		Short: "Show who holds a lock, on whatever host",
		Long: `Show who holds a lock, on whatever host.

A quorum of the nodes is asked. A lock that nobody holds is "free", or MODE is
"next": the nodes keep it for one who has waited, for TTL at most. HELD is the
number of nodes that it is held on. What another Redlock client holds has no
host, user or pid. NOTE is shown of what is held through this host's daemon, if you
may see it. NAME is one lock; a comma in it is written %2C, and shown so.

With --json: {"lock", "free", "holders": [{"mode": "exclusive" or "shared",
"slots", "slot", "host", "pid", "user", "since_ms", "ttl_ms", "held", "nodes",
"note" if there is one, "next" if it is so}]}.
slots is how many may hold it at once (0: it is no semaphore), slot which of them
this one is. Times are in milliseconds.

Exit codes: 0 the answer is printed, also for a free lock; 64 usage; 69 the
daemon is not available, or no quorum of nodes answered; 70 internal; 77 denied.`,
		Example: `  redlock who nightly-backup
  redlock who nightly-backup --json`,
		Args:              oneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := oneName("who", args[0])
			if err != nil {
				return err
			}
			holders, err := fetchHolders(cmd.Context(), name)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), whoJSONOf(name, holders))
			}
			return printHolders(cmd.OutOrStdout(), holders)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func fetchHolders(ctx context.Context, name string) (holders []client.Holder, err error) {
	err = ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		holders, err = c.Who(ctx, name)
		return err
	})
	return holders, err
}

func printHolders(out io.Writer, holders []client.Holder) error {
	if len(holders) == 0 {
		_, err := fmt.Fprintln(out, "free")
		return unwritten(err)
	}
	noted := slices.ContainsFunc(holders, func(h client.Holder) bool { return h.Note != "" })
	rows := [][]string{{"HOST", "PID", "USER", "MODE", "SINCE", "TTL", "HELD"}}
	for _, h := range holders {
		rows = append(rows, []string{
			known(h.Host), count(uint64(h.PID)), known(h.User), modeOfHolder(h), short(h.Since), short(h.TTL),
			fmt.Sprintf("%d/%d", h.Held, h.Nodes),
		})
		if noted {
			rows[len(rows)-1] = append(rows[len(rows)-1], h.Note)
		}
	}
	if noted {
		rows[0] = append(rows[0], "NOTE")
	}
	return table(out, rows)
}

func modeOfHolder(h client.Holder) string {
	if h.Waits {
		return "next"
	}
	return modeOf(h.Mode, h.Slots, h.Slot)
}

// modeOf is how a lock is held or wanted.
func modeOf(mode string, slots, slot int) string {
	switch {
	case slots == 0:
		return known(mode)
	case slot == 0:
		return fmt.Sprintf("1 of %d slots", slots)
	}
	return fmt.Sprintf("slot %d of %d", slot, slots)
}

// whoJSON is what who prints for programs. Names are never changed.
type whoJSON struct {
	Lock    string       `json:"lock"`
	Free    bool         `json:"free"`
	Holders []holderJSON `json:"holders"`
}

type holderJSON struct {
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
	Next  bool   `json:"next,omitempty"`
}

func whoJSONOf(name string, holders []client.Holder) whoJSON {
	return whoJSON{Lock: joinNames(name), Free: len(holders) == 0, Holders: holdersJSONOf(holders)}
}

func holdersJSONOf(holders []client.Holder) []holderJSON {
	list := []holderJSON{}
	for _, h := range holders {
		list = append(list, holderJSON{
			Mode: h.Mode, Slots: h.Slots, Slot: h.Slot, Host: h.Host, PID: h.PID, User: h.User,
			Since: h.Since.Milliseconds(), TTL: h.TTL.Milliseconds(), Held: h.Held, Nodes: h.Nodes, Note: h.Note, Next: h.Waits,
		})
	}
	return list
}
