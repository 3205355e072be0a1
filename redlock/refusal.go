package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// refusal says why a ballot was not won.
func (a *attempt) refusal(b *ballot.Ballot) error {
	q, name := a.q, a.name()
	switch {
	case b.LacksQuorum():
		return q.noQuorum(name, b)
	case b.Won():
		e := q.noQuorum(name, b)
		e.Failed = append(e.Failed, errTooLate(b.Op))
		return e
	case b.Op == "fence":
		e := q.noQuorum(name, b)
		e.Failed = append(e.Failed, errLockGone(b.Refused))
		return e
	}
	e := heldBy(name, b)
	if e.split {
		q.counts.splits.Add(1)
	}
	return e
}

// errLockGone is the error of an attempt whose lock went away while its fencing token
// was written back.
func errLockGone(nodes int) *NodeError {
	return &NodeError{Node: "this attempt", Op: "fence", Failure: FailedLate,
		Err: fmt.Errorf("the lock was gone again on %d nodes (expired, deleted or flushed) before its fencing token was written", nodes)}
}

// errOverloaded returns the error of an attempt that waited for others and was not sent.
func (q *Quorum) errOverloaded(name string) error {
	return &NoQuorumError{Name: name, Needed: q.quorum, Retry: q.options.NodeTimeout, Failed: []*NodeError{{
		Node: "this host", Op: "acquire", Failure: FailedFull,
		Err: errors.New("it was not sent to the nodes: too many attempts of this host are under way, and the nodes have answered none of them in time"),
	}}}
}

// errTooLate is the error of a ballot that was won when its validity was over.
func errTooLate(op string) *NodeError {
	return &NodeError{Node: "this host", Op: op, Failure: FailedLate,
		Err: errors.New("the answers came when the lease would have been over already")}
}

func (q *Quorum) noQuorum(name string, b *ballot.Ballot) *NoQuorumError {
	b.NoteUnreachable(q.lanes)
	e := &NoQuorumError{
		Name:    name,
		Granted: b.Granted,
		Needed:  b.Quorum,
		Failed:  b.Failures(),
		Retry:   q.options.NodeTimeout,
	}
	var endless bool
	switch e.Quarantine, endless = q.quarantineLeft(e.Failed); {
	case e.Quarantine > 0:
		e.Retry = e.Quarantine
		e.Sources = slices.ContainsFunc(q.Status().Nodes, NodeStatus.Wanting)
	case endless:
		e.Retry = max(e.Retry, endlessRetry)
	}
	return e
}

// endlessRetry is when another attempt makes sense where a quarantine ends only with the
// return of other nodes, or an ADMIT: to ask at each NodeTimeout finds out nothing else.
const endlessRetry = time.Second

// quarantineLeft is how long it takes until a quorum can vote where quarantines
// are all that is in the way; 0 where something else is. endless tells of one that waits
// for more than time.
func (q *Quorum) quarantineLeft(failures []*NodeError) (until time.Duration, endless bool) {
	var left []time.Duration
	for _, failure := range failures {
		if failure.Failure != FailedQuarantined {
			continue
		}
		e := (*QuarantineError)(nil)
		switch {
		case errors.As(failure.Err, &e):
			left = append(left, max(e.Left, time.Millisecond))
		case redis.IsServerError(failure.Err): // it has only just said so
			left = append(left, q.admission.LongestTTL())
		default:
			endless = true
		}
	}
	able := len(q.lanes) - len(failures)
	return untilQuorum(left, q.quorum-able), endless
}

// heldBy names the holder that most nodes showed, and how long its lease lasts
// where it lasts longest.
func heldBy(name string, b *ballot.Ballot) *HeldError {
	shown, kind := tally(b.Answers), b.KindShown()
	e := &HeldError{Name: name, Shared: kind == script.KindShared || kind == script.KindWriter, Waiting: script.IsWaiting(kind), Slots: script.SlotsOf(kind)}
	if len(shown) > 0 && (2*shown[0].Held > b.Refused || e.Shared || e.Slots > 0) {
		e.Holder, e.TTL, e.foreign = shown[0].Holder, shown[0].TTL, isForeign(&shown[0])
		e.token = shown[0].token
	}
	if e.Slots > 0 {
		e.TTL = b.Soonest()
	}
	e.free = b.FreePlace()
	e.split = e.Slots == 0 && !e.Shared && (len(shown) == 0 || shown[0].Held <= b.Quorum-1-b.Unheard())
	if kind == "" && e.token == "" && b.Barred() { // with values that are not the same
		e.Holder, e.TTL, e.split = Holder{}, Endless, false
		e.foreign = !slices.ContainsFunc(shown, func(h Holding) bool { return !isForeign(&h) })
	}
	return e
}

// mostShown is how much the nodes show of a value that is none of ours: see ballot.lua.
const mostShown = 4096

// isForeign reports whether the holder is another Redlock client, which deletes no wake-up
// key: the lock's key itself is watched, which takes reading it. A large value is not read
// again and again.
func isForeign(h *Holding) bool { return !h.Holder.Known() && len(h.token) < mostShown }
