package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether locks can be taken, and how the nodes are",
		Long: `Show whether locks can be taken, and how the nodes are, as this host's daemon
sees them.

With --json: {"ready", "quorum", "spare", "left_ms", "max_ttl_ms", "text", "nodes":
[{"node", "address", "state", "left_ms", "rtt_ms", "wakeups", "reason"}], "counts":
{"leases", …}}; and where a restart of redlockd would lose what is held, "unnoted":
true and "table", a word for why (redlockd-protocol(7)). spare is how many more
nodes may fail, below 0 where there is no quorum. left_ms is what is left of a
node's quarantine, and of those that keep a quorum from voting: nodes that are new
or were restarted have no vote for max_ttl, as they may have forgotten locks.
wakeups is how a node lets waiters know that a lock is free: "tracking", or
"polling" where it does not and they ask at random intervals; "" is not known.
Counts are since redlockd was started.

Exit codes: 0 a quorum of nodes is ready; 69 it is not, or the daemon is not
available; 64 usage; 70 internal; 77 denied.`,
		Example: `  redlock status
  redlock status >/dev/null || echo "no locks on this host"`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := fetchStatus(cmd.Context())
			if err != nil {
				return err
			}
			if err := printStatus(cmd.OutOrStdout(), status, asJSON); err != nil {
				return err
			}
			if !ready(status) {
				return exit(exitUnavailable)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func fetchStatus(ctx context.Context) (status *client.Status, err error) {
	err = ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		status, err = c.Status(ctx)
		return err
	})
	return status, err
}

// ready tells whether a quorum of nodes is.
func ready(s *client.Status) bool { return s.Spare >= 0 }

func printStatus(out io.Writer, s *client.Status, asJSON bool) error {
	if asJSON {
		return printJSON(out, statusJSONOf(s))
	}
	if _, err := fmt.Fprintf(out, "%s\n%s\n\n", verdict(s), counts(s)); err != nil {
		return unwritten(err)
	}
	if err := printNodes(out, s.Nodes); err != nil {
		return err
	}
	return printReasons(out, s.Nodes)
}

func printNodes(out io.Writer, nodes []client.Node) error {
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "RTT"}}
	for _, n := range nodes {
		rows = append(rows, []string{n.Name, n.Address, nodeState(n), short(n.RTT)})
	}
	return table(out, rows)
}

// printReasons says under the table what is the matter with nodes: several often
// have the same, and it is too long for a column.
func printReasons(out io.Writer, nodes []client.Node) error {
	for _, g := range grouped(nodes, func(n client.Node) string { return n.Reason }) {
		if g.what == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "\n%s: %s\n", strings.Join(g.names, ", "), cell(g.what)); err != nil {
			return unwritten(err)
		}
	}
	return nil
}

// nodeGroup is nodes that have something in common.
type nodeGroup struct {
	what  string
	first client.Node
	names []string // of all
}

// grouped puts nodes together for which what is the same, in the order of the first
// of each group.
func grouped(nodes []client.Node, what func(client.Node) string) (groups []nodeGroup) {
	for _, n := range nodes {
		common := what(n)
		i := slices.IndexFunc(groups, func(g nodeGroup) bool { return g.what == common })
		if i < 0 {
			i = len(groups)
			groups = append(groups, nodeGroup{what: common, first: n})
		}
		groups[i].names = append(groups[i].names, n.Name)
	}
	return groups
}

func verdict(s *client.Status) string {
	word := "ready"
	if !ready(s) {
		word = "NOT READY"
	}
	return fmt.Sprintf("%s (a quorum is %d of %s): %s", word, s.Quorum, nodeCount(len(s.Nodes)), cell(s.Text))
}

// gauges are the counts that are shown even at 0.
var gauges = []string{"connections", "leases", "waiters"}

// isGauge tells whether a count is of what is now.
func isGauge(name string) bool { return slices.Contains(gauges, name) }

// gaugeWords are the counts of what is now.
func gaugeWords(s *client.Status) (words []string) {
	for _, name := range gauges {
		words = append(words, fmt.Sprintf("%s %d", name, s.Counts[name]))
	}
	return words
}

// totalWords are the counts of what was, in a fixed order, with their rates, a
// second, where these are known; nil: they are not.
func totalWords(s *client.Status, rates map[string]float64) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		n := s.Counts[name]
		if n == 0 || isGauge(name) {
			continue
		}
		word := fmt.Sprintf("%s %d", name, n)
		if rates != nil {
			word += fmt.Sprintf(" (%.1f/s)", rates[name])
		}
		words = append(words, word)
	}
	return words
}

// counts are the daemon's: what is now, then what was.
func counts(s *client.Status) string {
	words := append(gaugeWords(s), totalWords(s, nil)...)
	if polled := polling(s.Nodes); len(polled) > 0 {
		words = append(words, fmt.Sprintf("waiters poll %d of the nodes", len(polled)))
	}
	return strings.Join(words, ", ")
}

// polling are the names of the nodes that wake nobody up.
func polling(nodes []client.Node) (names []string) {
	for _, n := range nodes {
		if n.Wakeups == "polling" {
			names = append(names, n.Name)
		}
	}
	return names
}

func nodeState(n client.Node) string {
	if n.Left > 0 {
		return fmt.Sprintf("%s for %s", n.State, short(n.Left))
	}
	return n.State
}

// statusJSON is what status prints for programs. Names are never changed.
type statusJSON struct {
	Ready  bool             `json:"ready"`
	Quorum int              `json:"quorum"`
	Spare  int              `json:"spare"`
	Left   int64            `json:"left_ms"`
	MaxTTL int64            `json:"max_ttl_ms"`
	Text   string           `json:"text"`
	Nodes  []nodeJSON       `json:"nodes"`
	Counts map[string]int64 `json:"counts"`

	Unnoted bool   `json:"unnoted,omitempty"`
	Table   string `json:"table,omitempty"`
}

type nodeJSON struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	State   string `json:"state"`
	Left    int64  `json:"left_ms"`
	RTT     int64  `json:"rtt_ms"`
	Wakeups string `json:"wakeups"`
	Reason  string `json:"reason"`
}

func statusJSONOf(s *client.Status) statusJSON {
	status := statusJSON{
		Ready: ready(s), Quorum: s.Quorum, Spare: s.Spare, Left: s.Left.Milliseconds(), MaxTTL: s.MaxTTL.Milliseconds(),
		Text: s.Text, Nodes: []nodeJSON{}, Counts: s.Counts, Unnoted: s.Unnoted, Table: s.Table,
	}
	for _, n := range s.Nodes {
		status.Nodes = append(status.Nodes, nodeJSON{
			Node: n.Name, Address: n.Address, State: n.State,
			Left: n.Left.Milliseconds(), RTT: n.RTT.Milliseconds(), Wakeups: n.Wakeups, Reason: n.Reason,
		})
	}
	return status
}
