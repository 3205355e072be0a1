package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// An error names nodes with the same failure together: an outage of five nodes is one text, not
// five.
func TestNoQuorumErrorGroupsEqualFailures(t *testing.T) {
	full, silent := errors.New("OOM"), errors.New("silent for 400ms")
	failed := func(node string, how redlock.Failure, err error) *redlock.NodeError {
		return &redlock.NodeError{Node: node, Op: "acquire", Failure: how, Err: err}
	}
	err := &redlock.NoQuorumError{Name: "x", Granted: 1, Needed: 3, Failed: []*redlock.NodeError{
		failed("a", redlock.FailedError, full), failed("b", redlock.FailedTimeout, silent), failed("c", redlock.FailedError, full), failed("d", redlock.FailedDown, full),
	}}
	want(t, "the text", err.Error(), "x: no quorum: 4 nodes failed, and 1 of the 3 needed nodes granted; "+
		"a, c: acquire: error: OOM; b: acquire: timeout: silent for 400ms; d: acquire: down: OOM")
	want(t, "the node of the first failure", err.Failed[0].Node, "a")
}

// The error counts grants only if the lock was requested, and not for a question. If all nodes are in
// quarantine, it has nothing but that.
func TestNoQuorumErrorCountsNoGrantsOfAQuestion(t *testing.T) {
	down := func(op string) *redlock.NodeError {
		return &redlock.NodeError{Node: "a", Op: op, Failure: redlock.FailedDown, Err: errors.New("EOF")}
	}
	for _, test := range []struct {
		err  redlock.NoQuorumError
		want string
	}{
		{redlock.NoQuorumError{Granted: 1, Needed: 2, Failed: []*redlock.NodeError{down("who")}}, "x: no quorum: 1 node failed, and 2 are needed; a: who: down: EOF"},
		{redlock.NoQuorumError{Needed: 2, Failed: []*redlock.NodeError{down("acquire"), down("acquire")}}, "x: no quorum: 2 nodes failed, and 2 are needed; a, a: acquire: down: EOF"},
		{
			redlock.NoQuorumError{Needed: 1, Quarantine: time.Second, Failed: []*redlock.NodeError{{Node: "a", Op: "who", Failure: redlock.FailedQuarantined}}},
			"x: no quorum; a quorum can vote in 1s; nodes in quarantine (new or restarted, they may have forgotten locks that are still held): a",
		},
	} {
		test.err.Name = "x"
		want(t, "the text", test.err.Error(), test.want)
	}
}

// The error of a quarantined node does not promise a vote: after the quarantine, the node may
// have to wait for other nodes.
func TestQuarantineErrorPromisesNothing(t *testing.T) {
	err := &redlock.QuarantineError{Left: 1900 * ms, Reason: errors.New("it is new")}
	want(t, "the text", err.Error(), "no vote for at least another 1.9s: it is new")
}
