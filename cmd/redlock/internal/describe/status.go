package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

func Verdict(s *client.Status) string {
	word := "ready"
	if !Ready(s) {
		word = "NOT READY"
	}
	return fmt.Sprintf("%s (a quorum is %d of %s): %s", word, s.Quorum, output.NodeCount(len(s.Nodes)), output.Cell(s.Text))
}

// gauges are the counts that are printed even if they are 0.
var gauges = []string{"connections", "leases", "waiters"}

// IsGauge reports whether a count goes up and down.
func IsGauge(name string) bool { return slices.Contains(gauges, name) }

// Gauges returns the counts of current connections, leases and waiters.
func Gauges(s *client.Status) (words []string) {
	for _, name := range gauges {
		words = append(words, fmt.Sprintf("%s %d", name, s.Counts[name]))
	}
	return words
}

// Totals returns the counts since the start of the daemon, in a fixed order. rates are per second,
// or nil.
func Totals(s *client.Status, rates map[string]float64) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		n := s.Counts[name]
		if n == 0 || IsGauge(name) {
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

// CountsLine returns all counts of the daemon: gauges, then totals.
func CountsLine(s *client.Status) string {
	words := append(Gauges(s), Totals(s, nil)...)
	if polled := PollingNodes(s.Nodes); len(polled) > 0 {
		words = append(words, fmt.Sprintf("waiters poll %d of the nodes", len(polled)))
	}
	return strings.Join(words, ", ")
}

// StatusJSON is the document that status prints. Its keys never change.
type StatusJSON struct {
	Ready    bool             `json:"ready"`
	Quorum   int              `json:"quorum"`
	Spare    int              `json:"spare"`
	Left     int64            `json:"left_ms"`
	Draining int64            `json:"draining_ms,omitempty"`
	MaxTTL   int64            `json:"max_ttl_ms"`
	Text     string           `json:"text"`
	Nodes    []NodeJSON       `json:"nodes"`
	Counts   map[string]int64 `json:"counts"`

	Unnoted bool   `json:"unnoted,omitempty"`
	Table   string `json:"table,omitempty"`
}

func StatusToJSON(s *client.Status) StatusJSON {
	status := StatusJSON{
		Ready: Ready(s), Quorum: s.Quorum, Spare: s.Spare, Left: s.Left.Milliseconds(), Draining: s.Draining.Milliseconds(), MaxTTL: s.MaxTTL.Milliseconds(),
		Text: s.Text, Nodes: []NodeJSON{}, Counts: s.Counts, Unnoted: s.Unnoted, Table: s.Table,
	}
	for _, n := range s.Nodes {
		status.Nodes = append(status.Nodes, NodeJSON{
			Node: n.Name, Address: n.Address, State: n.State,
			Left: n.Left.Milliseconds(), RTT: n.RTT.Milliseconds(), Write: n.Write.Milliseconds(), Wakeups: n.Wakeups, Reason: n.Reason,
		})
	}
	return status
}
