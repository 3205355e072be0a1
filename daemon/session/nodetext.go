package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// nodeText returns why a node does not vote, or its warnings.
func nodeText(node redlock.NodeStatus) string {
	var texts []string
	switch {
	case node.NeedsOthers():
		texts = append(texts, missingNodesText(node))
	case node.Reason != nil:
		texts = append(texts, ReasonText(node.Reason))
	}
	return strings.Join(append(texts, node.OtherWarnings()...), "; ")
}

func missingNodesText(node redlock.NodeStatus) string {
	text := fmt.Sprintf("after that, its fencing counters are to be copied from %d other nodes that may vote, and there are %d: bring those up", node.SourcesNeeded, node.SourcesFound)
	if e, ok := errors.AsType[*redlock.QuarantineError](node.Reason); ok {
		return e.Reason.Error() + "; " + text
	}
	return text
}

// ReasonText returns why a node does not vote. It does not state how long a quarantine lasts (left=
// does), and does not quote Redis if the login failed.
func ReasonText(reason error) string {
	if e, ok := errors.AsType[*redlock.QuarantineError](reason); ok {
		return e.Reason.Error() + "; after that its votes count again"
	}
	return cmp.Or(loginText(reason), reason.Error())
}

func statusText(status redlock.Status) string {
	text := strings.Join(append([]string{availabilityText(status)}, status.Warning...), "; ")
	if n := status.Counts.CounterLosses; n > 0 {
		text += "; a quorum of nodes began without fencing counters: unless they were new, earlier tokens may be larger: " +
			"check that the stores that compare tokens accept the next ones (a restart of redlockd ends this message)"
	}
	return text
}

// availabilityText returns whether locks can be taken, and how many nodes may fail.
func availabilityText(status redlock.Status) string {
	switch spare := status.Spare(); {
	case spare < 0 && status.Left > 0:
		return fmt.Sprintf("no quorum for another %v: %s", Seconds(status.Left), NoQuorumReason(status))
	case spare < 0:
		return "no quorum: " + NoQuorumReason(status)
	case spare == 0:
		return "locks work, but no further node may fail"
	case spare == 1:
		return "locks work, and 1 more node may fail"
	default:
		return "locks work, and " + strconv.Itoa(spare) + " more nodes may fail"
	}
}

// NoQuorumReason returns why there is no quorum, and what to do, for STATUS and for the log.
func NoQuorumReason(status redlock.Status) string {
	const voteless = "do not vote for max_ttl and up to 2s for differing clocks, because they may have forgotten locks"
	switch {
	case status.Left == 0:
		return "no lock can be taken until more nodes are ready"
	case slices.ContainsFunc(status.Nodes, func(n redlock.NodeStatus) bool { return n.OnlyHere }):
		return "this host was stopped, or nodes' clocks were stepped, so nodes may have released locks that are still held; " +
			"LOCK waits for that; it ends by itself, and cannot be ended early"
	case slices.ContainsFunc(status.Nodes, redlock.NodeStatus.NeedsOthers):
		return "nodes that were restarted or flushed " + voteless + "; and after that not until more nodes are up, " +
			"because they must copy fencing counters from others, of which too few may vote; LOCK waits for that"
	}
	text := "nodes that are new or were restarted " + voteless + "; LOCK waits for that"
	if status.AllNew && !slices.ContainsFunc(status.Nodes, func(n redlock.NodeStatus) bool { return n.State != redlock.NodeQuarantined }) {
		return text + "; if all nodes are known to be new, and no host holds a lock, end it: ADMIT all, or in a shell redlock admit all"
	}
	return text + "; do not end it earlier (ADMIT) while any host may hold a lock: these nodes are not new, and two clients could hold it"
}

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
