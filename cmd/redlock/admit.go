package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newAdmitCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "admit NODE|all",
		Short: "End the quarantine of nodes that are brand-new",
		Long: `End the quarantine of a node early, or with "all" that of all nodes.

A node that is new, or was restarted without its data, has no vote until every
lease is over that it may have forgotten. Only you can know that there are none:
because the nodes are brand-new, and no lock was ever taken on them. Otherwise two
holders of one lock are possible. (Where a node's quarantine is over, and it waits for
others that are down to copy fencing counters from, it is the tokens alone that may
begin anew.) It is for root and redlockd's own user or, where
there are access rules, for whoever has "admin" for every lock; and it is logged.

With --json: {"admitted": ["a", …]}, the nodes whose votes count from now on that
did not before.

Exit codes: 0 done, or it was not in quarantine, and is ready; 64 usage, or there is
no such node; 69 the daemon or the node is not available; 70 internal; 77 denied.`,
		Example: `  redlock admit all
  redlock admit all --json`,
		Args:              flags.ExactlyOne("the name of a NODE, or all,"),
		ValidArgsFunction: completeQuarantined,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := []string{} // for JSON
			err := socket.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				admitted, err := c.Admit(ctx, args[0])
				nodes = append(nodes, admitted...)
				if errors.Is(err, client.ErrInvalid) {
					err = whyNotAdmitted(ctx, c, args[0], err)
				}
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return output.PrintJSON(cmd.OutOrStdout(), admittedJSON{nodes})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(strings.Join(nodes, "\n"), nobodyAdmitted(args[0])))
			return output.WriteError(err)
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

// whyNotAdmitted tells apart what the daemon refuses with one code: a node that there is
// none of, one that is not there, and one that is ready, which is no error.
func whyNotAdmitted(ctx context.Context, c *client.Client, node string, refused error) error {
	status, err := c.Status(ctx)
	if err != nil {
		return refused
	}
	i := slices.IndexFunc(status.Nodes, func(n client.Node) bool { return n.Name == node })
	switch {
	case i < 0, status.Nodes[i].State == "quarantined":
		return refused
	case status.Nodes[i].State == "ready":
		return nil
	}
	return exit.Reword(client.ErrUnavailable,
		fmt.Sprintf("node %s cannot be admitted while it is %s (redlock status tells when it is in quarantine)", node, describe.NodeCondition(status.Nodes[i])))
}

func nobodyAdmitted(wanted string) string {
	if wanted == "all" {
		return "no node is in quarantine"
	}
	return fmt.Sprintf("node %s is ready, and not in quarantine", output.Cell(wanted))
}

// admittedJSON is what admit prints for programs. Names are never changed.
type admittedJSON struct {
	Admitted []string `json:"admitted"`
}
