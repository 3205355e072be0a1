package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newNodesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "nodes [commit|undo]",
		Short: "Change the set of nodes while locks are held",
		Long: `Show how far a change of the nodes is: what each node serves, which hosts have which
list, and what to do next.

redlock nodes commit makes the new list final: from then on, hosts whose config has the
old list get no vote. It is refused while such a host is at work, and names it.
redlock nodes undo, on a host with the old list, ends a change that is not committed.
Both are for root and redlockd's own user or, with access rules, for users with "admin"
for every lock, as is redlock nodes itself. redlockd logs them.

A node's step is begun (it serves hosts with the old list and hosts with both),
committed (hosts with both) or done (hosts with both and with the new one).

With --json: {"change", "next", "nodes": [{"node", "address", "state", "step", "list",
"reason"}], "hosts": [{"host", "list", "seen_ms"}], "behind", "missing", "left_ms",
"conflict", "unseen"}. left_ms is about how long the step lasts; 0 if it waits for
you. change is "begins", "begun", "committed" or "done", or "" if
this host's config has no joining or leaving nodes. A host's list is "old", "joint"
(both), "new" or "other"; seen_ms is how long ago a node heard of it. unseen: too few
nodes answered to know all hosts.

Exit codes: 0 done; 69 it cannot be done now, or the daemon is not available; 64 usage;
70 internal; 77 denied.`,
		Example: `  redlock nodes
  redlock nodes commit`,
		Args:              flags.AtMost(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"commit", "undo"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := changeNodes(cmd.Context(), args)
			if err != nil {
				return err
			}
			return output.Show(cmd.OutOrStdout(), asJSON, nodesToJSON(change), changeText(change))
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

func changeNodes(ctx context.Context, args []string) (*client.NodeChange, error) {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	ask := map[string]func(*client.Client, context.Context) (*client.NodeChange, error){
		"": (*client.Client).Nodes, "commit": (*client.Client).CommitNodes, "undo": (*client.Client).UndoNodes,
	}[verb]
	if ask == nil {
		return nil, exit.Usagef("%q: wanted commit, undo or nothing", verb)
	}
	return socket.Get(ctx, func(c *client.Client, ctx context.Context) (*client.NodeChange, error) {
		change, err := ask(c, ctx)
		if errors.Is(err, client.ErrInvalid) { // not a fault of the command line
			err = exit.Reword(client.ErrUnavailable, err.Error())
		}
		return change, err
	})
}

func changeText(c *client.NodeChange) string {
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "LIST", "STEP"}}
	for _, n := range c.Nodes {
		rows = append(rows, []string{n.Name, n.Address, describe.NodeState(n), output.OrDash(n.List), output.OrDash(n.Step)})
	}
	text := fmt.Sprintf("change: %s\nnext: %s\n\n%s", cmp.Or(c.Step, "none in the config of this host"), output.Cell(c.Next), output.Table(rows))
	if len(c.Hosts) == 0 {
		return text
	}
	rows = [][]string{{"HOST", "LIST", "SEEN"}}
	for _, h := range c.Hosts {
		rows = append(rows, []string{h.Name, h.List, output.Duration(max(h.Seen, time.Millisecond)) + " ago"})
	}
	return text + "\n" + output.Table(rows)
}

// nodesJSON is the document that nodes prints. Its keys never change.
type nodesJSON struct {
	Change   string         `json:"change"`
	Next     string         `json:"next"`
	Nodes    []changedJSON  `json:"nodes"`
	Hosts    []nodeHostJSON `json:"hosts"`
	Behind   []string       `json:"behind"`
	Missing  []string       `json:"missing"`
	Left     int64          `json:"left_ms"`
	Conflict bool           `json:"conflict"`
	Unseen   bool           `json:"unseen"`
}

type changedJSON struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	State   string `json:"state"`
	Step    string `json:"step"`
	List    string `json:"list"`
	Reason  string `json:"reason"`
}

type nodeHostJSON struct {
	Host string `json:"host"`
	List string `json:"list"`
	Seen int64  `json:"seen_ms"`
}

func nodesToJSON(c *client.NodeChange) nodesJSON {
	doc := nodesJSON{
		Change: c.Step, Next: c.Next, Nodes: []changedJSON{}, Hosts: []nodeHostJSON{}, Behind: append([]string{}, c.Behind...),
		Missing: append([]string{}, c.Missing...), Left: c.Left.Milliseconds(), Conflict: c.Conflict, Unseen: c.Unseen,
	}
	for _, n := range c.Nodes {
		doc.Nodes = append(doc.Nodes, changedJSON{n.Name, n.Address, n.State, n.Step, n.List, n.Reason})
	}
	for _, h := range c.Hosts {
		doc.Hosts = append(doc.Hosts, nodeHostJSON{h.Name, h.List, h.Seen.Milliseconds()})
	}
	return doc
}
