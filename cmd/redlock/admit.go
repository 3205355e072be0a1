package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
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
holders of one lock are possible. It is for root and redlockd's own user, and logged.

With --json: {"admitted": ["a", …]}, the nodes whose votes count from now on.

Exit codes: 0; 64 usage, or there is no such node; 69 the daemon or the node is
not available; 70 internal; 77 denied.`,
		Example: `  redlock admit all
  redlock admit all --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQuarantined,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := []string{} // for JSON
			err := ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				admitted, err := c.Admit(ctx, args[0])
				nodes = append(nodes, admitted...)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), admittedJSON{nodes})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(strings.Join(nodes, "\n"), "no node is in quarantine"))
			return unwritten(err)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// admittedJSON is what admit prints for programs. Names are never changed.
type admittedJSON struct {
	Admitted []string `json:"admitted"`
}
