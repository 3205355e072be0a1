package metrics

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Each number is exported with its own name and unit.
func TestCollectorOfStatus(t *testing.T) {
	status := redlock.Status{
		Quorum: 3, Ready: 1, Left: 1500 * time.Millisecond, MaxTTL: 30 * time.Second,
		Nodes: []redlock.NodeStatus{
			{Name: "a", State: redlock.NodeReady, Write: 3 * time.Millisecond, Warning: []string{"no persistence", "noeviction"}},
			{Name: "b", State: redlock.NodeQuarantined, Left: 2500 * time.Millisecond},
			{Name: "c", State: redlock.NodeDown}, {Name: "d", State: redlock.NodeRefused}, {Name: "e", State: redlock.NodeConnecting},
		},
		Counts: redlock.Counts{
			Grants: 1, HandOvers: 2, Passes: 11, Splits: 3, Wakeups: 4, WriteBacks: 5, Repairs: 6, Lost: 99, Quarantines: 7, ClockJumps: 8, Withdrawals: 9, CounterLosses: 10,
		},
	}
	scrapeOf(t, collector{func() Snapshot { return Snapshot{Quorum: status} }}).want(t, scraped{
		`redlockd_nodes`:                                    5,
		`redlockd_quorum`:                                   3,
		`redlockd_quorum_spare`:                             -2,
		`redlockd_quorum_left_seconds`:                      1.5,
		`redlockd_max_ttl_seconds`:                          30,
		`redlockd_node_write_seconds{node="a"}`:             .003,
		`redlockd_node_warnings{node="a"}`:                  2,
		`redlockd_node_warnings{node="b"}`:                  0,
		`redlockd_nodes_change{step="begun"}`:               0,
		`redlockd_node_quarantine_left_seconds{node="b"}`:   2.5,
		`redlockd_node_quarantine_left_seconds{node="c"}`:   0,
		`redlockd_node_state{node="a",state="ready"}`:       1,
		`redlockd_node_state{node="a",state="down"}`:        0,
		`redlockd_node_state{node="b",state="quarantined"}`: 1,
		`redlockd_node_state{node="c",state="down"}`:        1,
		`redlockd_node_state{node="d",state="refused"}`:     1,
		`redlockd_node_state{node="e",state="connecting"}`:  1,

		`redlockd_grants_total`:         1,
		`redlockd_hand_overs_total`:     2,
		`redlockd_passes_total`:         11,
		`redlockd_splits_total`:         3,
		`redlockd_wake_ups_total`:       4,
		`redlockd_write_backs_total`:    5,
		`redlockd_repairs_total`:        6,
		`redlockd_quarantines_total`:    7,
		`redlockd_clock_jumps_total`:    8,
		`redlockd_withdrawals_total`:    9,
		`redlockd_fencing_resets_total`: 10,
	})
}

// The step of a change of the nodes is exported.
func TestCollectorOfChange(t *testing.T) {
	status := redlock.Status{Change: &redlock.Change{Step: redlock.ChangeCommitted}}
	scrapeOf(t, collector{func() Snapshot { return Snapshot{Quorum: status} }}).want(t, scraped{
		`redlockd_nodes_change{step="begun"}`:     0,
		`redlockd_nodes_change{step="committed"}`: 1,
	})
}
