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
		Short: "End the quarantine of new nodes",
		Long: `End the quarantine of a node early or, with "all", of all nodes.

A node that is new, or was restarted without its data, does not vote until every lease
that it may have forgotten has expired. Use this only if you know that there are none,
because the nodes are new and no lock was ever taken on them. Otherwise two processes may
hold one lock. (If a node has waited long enough, and still needs other nodes to copy
fencing counters from, only the tokens may start again.) ADMIT is for root and redlockd's
own user or, with access rules, for users with "admin" for every lock. redlockd logs it.

With --json: {"admitted": ["a", …]}, the nodes that could not vote before, and can now.

Exit codes: 0 done, or the node was ready already; 64 usage, or there is no such node;
69 the daemon or the node is not available; 70 internal; 76 redlockd was restarted
meanwhile, and the result is unknown; 77 denied.`,
		Example: `  redlock admit all
  redlock admit all --json`,
		Args:              flags.ExactlyOne("the name of a NODE, or all,"),
		ValidArgsFunction: completeQuarantined,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := []string{} // an empty list in JSON, not null
			err := socket.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				admitted, err := c.Admit(ctx, args[0])
				nodes = append(nodes, admitted...)
				if errors.Is(err, client.ErrInvalid) {
					err = notAdmittedError(ctx, c, args[0], err)
				}
				return err
			})
			if err != nil {
				return err
			}
			none := "no node is in quarantine"
			if args[0] != "all" {
				none = fmt.Sprintf("node %s is ready, and not in quarantine", output.Cell(args[0]))
			}
			return output.Show(cmd.OutOrStdout(), asJSON, admittedJSON{nodes}, cmp.Or(strings.Join(nodes, "\n"), none)+"\n")
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

// notAdmittedError distinguishes the cases that the daemon refuses with one code: an unknown node, a
// node that is down, and a node that is ready, which is not an error.
func notAdmittedError(ctx context.Context, c *client.Client, node string, refused error) error {
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
		fmt.Sprintf("node %s cannot be admitted while it is %s (redlock status shows when it is in quarantine)", node, describe.NodeCondition(status.Nodes[i])))
}

// admittedJSON is the document that admit prints. Its keys never change.
type admittedJSON struct {
	Admitted []string `json:"admitted"`
}
