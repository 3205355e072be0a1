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

A quorum of the nodes is asked. A lock that nobody holds is "free". HELD is the
number of nodes that it is held on. What another Redlock client holds has no
host, user or pid.

With --json: {"lock", "free", "holders": [{"mode", "slots", "slot", "host", "pid",
"user", "since_ms", "ttl_ms", "held", "nodes"}]}. Times are in milliseconds; slots
0 is no semaphore.

Exit codes: 0 the answer is printed, also for a free lock; 64 usage; 69 the
daemon is not available, or no quorum of nodes answered; 70 internal; 77 denied.`,
		Example: `  redlock who nightly-backup
  redlock who nightly-backup --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var holders []client.Holder
			err := ask(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				holders, err = c.Who(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), whoJSONOf(args[0], holders))
			}
			return printHolders(cmd.OutOrStdout(), holders)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "for programs: print JSON")
}

func printHolders(out io.Writer, holders []client.Holder) error {
	if len(holders) == 0 {
		_, err := fmt.Fprintln(out, "free")
		return unwritten(err)
	}
	rows := [][]string{{"HOST", "PID", "USER", "MODE", "SINCE", "TTL", "HELD"}}
	for _, h := range holders {
		rows = append(rows, []string{
			known(h.Host), count(uint64(h.PID)), known(h.User), modeOf(h.Mode, h.Slot, h.Slots), short(h.Since), short(h.TTL),
			fmt.Sprintf("%d/%d", h.Held, h.Nodes),
		})
	}
	return table(out, rows)
}

// modeOf is how a lock is held, or is to be: slot is 0 then.
func modeOf(mode string, slot, slots int) string {
	if slots > 0 {
		return fmt.Sprintf("slot %s of %d", count(uint64(slot)), slots)
	}
	return known(mode)
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
}

func whoJSONOf(name string, holders []client.Holder) whoJSON {
	who := whoJSON{Lock: name, Free: len(holders) == 0, Holders: []holderJSON{}}
	for _, h := range holders {
		who.Holders = append(who.Holders, holderJSON{
			Mode: h.Mode, Slots: h.Slots, Slot: h.Slot, Host: h.Host, PID: h.PID, User: h.User,
			Since: h.Since.Milliseconds(), TTL: h.TTL.Milliseconds(),
			Held: h.Held, Nodes: h.Nodes,
		})
	}
	return who
}

// completeNames completes the first argument to the locks that are in use here.
// Where the daemon does not say them there are none.
func completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	_ = ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		entries, err := c.List(ctx)
		for _, e := range entries {
			names = append(names, e.Name)
		}
		return err
	})
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
