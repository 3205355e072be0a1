package describe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// NodeCondition returns the state of a node and the reason for it.
func NodeCondition(n client.Node) string {
	if n.Reason == "" {
		return n.State
	}
	return n.State + ": " + n.Reason
}

// Ready reports whether locks can be taken: a quorum of nodes is ready, and redlockd does not drain.
func Ready(s *client.Status) bool { return s.Spare >= 0 && s.Draining == 0 }

// NodesText returns a table of the nodes, and below it why some are not ready. Nodes often share a
// reason, which is too long for a column.
func NodesText(nodes []client.Node) string {
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "RTT", "WRITE"}}
	for _, n := range nodes {
		rows = append(rows, []string{n.Name, n.Address, NodeState(n), output.Duration(n.RTT), output.Duration(n.Write)})
	}
	text := output.Table(rows)
	for _, g := range GroupNodes(nodes, func(n client.Node) string { return n.Reason }) {
		if g.Common != "" {
			text += fmt.Sprintf("\n%s: %s\n", strings.Join(g.Names, ", "), output.Cell(g.Common))
		}
	}
	return text
}

// NodeGroup is a group of nodes with a common text.
type NodeGroup struct {
	Common string
	First  client.Node
	Names  []string // of all nodes in the group
}

// GroupNodes groups nodes for which what returns the same text. The groups are in the order of
// their first nodes.
func GroupNodes(nodes []client.Node, what func(client.Node) string) (groups []NodeGroup) {
	for _, n := range nodes {
		common := what(n)
		i := slices.IndexFunc(groups, func(g NodeGroup) bool { return g.Common == common })
		if i < 0 {
			i = len(groups)
			groups = append(groups, NodeGroup{Common: common, First: n})
		}
		groups[i].Names = append(groups[i].Names, n.Name)
	}
	return groups
}

// PollingNodes returns the names of the nodes that do not wake waiters up.
func PollingNodes(nodes []client.Node) (names []string) {
	for _, n := range nodes {
		if n.Wakeups == "polling" {
			names = append(names, n.Name)
		}
	}
	return names
}

// NodeState returns the state of a node, with the time that is left of a quarantine.
func NodeState(n client.Node) string {
	if n.Left > 0 {
		return fmt.Sprintf("%s for %s", n.State, output.Duration(n.Left))
	}
	return n.State
}

type NodeJSON struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	State   string `json:"state"`
	Left    int64  `json:"left_ms"`
	RTT     int64  `json:"rtt_ms"`
	Write   int64  `json:"write_ms"`
	Wakeups string `json:"wakeups"`
	Reason  string `json:"reason"`
}
