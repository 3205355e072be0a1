package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// maxRewrites bounds how often an epoch is written in a row; then other hosts that write
// it as well have their turn.
const maxRewrites = 5

// verify finds out whether the node may vote, and writes its epoch if that is due: the
// marker of a quarantine, the end of one, a larger max_ttl.
func (l *lane) verify(ctx context.Context, conn Conn, s *admission.Snapshot) error {
	l.noteWarnings(s)
	var v admission.Verdict
	for range maxRewrites {
		if v = l.judge(ctx, s); v.Write == nil {
			l.applyVote(v.VoteStatus)
			if written, err := l.writeReports(ctx, conn, s, v.State); written || err != nil {
				return err
			}
		} else if err := l.writeVerdict(ctx, conn, s, &v); err != nil {
			return l.refuse(err)
		}
		var err error
		if s, err = l.look(ctx, conn); err != nil {
			return l.refuse(err)
		}
	}
	if v.Write != nil {
		l.applyVote(admission.VoteStatus{State: admission.Quarantined, Reason: errRestless})
	}
	return nil
}

var errRestless = errors.New("its epoch is being written by others all the time; it is looked at again in a second")

// judge returns what follows from a snapshot. It copies the other nodes' fencing counters
// if that is needed.
func (l *lane) judge(ctx context.Context, s *admission.Snapshot) admission.Verdict {
	v := l.member.Judge(s)
	l.fleet.judged(l.node.Name, &v)
	if !v.NeedsCounters {
		if v.State == admission.Quarantined {
			l.rules.meanwhile(l, ctx)
		}
		return v
	}
	counters, sources := l.rules.copyCounters(l, ctx)
	v = l.member.EndQuarantine(s, counters, sources)
	l.fleet.judged(l.node.Name, &v)
	return v
}

// writeReports writes to the node what it does not report yet about the other nodes'
// incarnations. written is false if another host has written there since the snapshot.
// When it fails, the next look tries again.
func (l *lane) writeReports(ctx context.Context, conn Conn, s *admission.Snapshot, state admission.State) (written bool, err error) {
	reports := l.member.Reports()
	if state == admission.Refused || reports == "" {
		return true, nil
	}
	err = l.rewrite(ctx, conn, s, s.Epoch, nil, reports)
	switch {
	case redis.IsServerError(err):
		return true, nil
	case err != nil || l.replies[0].Int != 1:
		return false, err
	}
	l.fleet.lookAt(l.member.NoteReports(reports, l.heard))
	return true, nil
}

// writeVerdict writes an epoch, and what is known about the other nodes' incarnations. It
// records the node's own reports before, or they would be overwritten: those beside an
// epoch that is not valid were not read.
func (l *lane) writeVerdict(ctx context.Context, conn Conn, s *admission.Snapshot, v *admission.Verdict) error {
	reports := ""
	if !l.fleet.options.NoQuarantine {
		l.fleet.lookAt(l.member.NoteReports(s.Incarnations, s.At))
		reports = l.member.Reports()
	}
	return l.rewrite(ctx, conn, s, v.Write.String(), script.Records(v.Counters), reports)
}

// rewrite writes an epoch, fencing counters (nil: they stay) and reports, unless another
// host wrote others since the snapshot.
func (l *lane) rewrite(ctx context.Context, conn Conn, s *admission.Snapshot, epoch string, records []byte, reports string) error {
	ahead := proposalAhead
	if l.fleet.options.NoQuarantine {
		ahead = 0
	}
	l.commands = l.commands[:0]
	l.appendCommand("EVALSHA", script.Epoch.SHA, "1", script.NodeKey, s.Epoch, epoch, string(records), strconv.FormatInt(ahead.Microseconds(), 10), reports, s.Incarnations)
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	err := l.replies[0].Err
	switch {
	case err == nil:
		return nil
	case redis.IsKind(err, "NOSCRIPT"): // loaded again, and tried again
		return l.load(ctx, conn)
	}
	return fmt.Errorf("its epoch cannot be written: %w%s", err, helpWith(err))
}

// proposalAhead is how far a proposed fencing token may be ahead of a node's TIME
// (ballot.lua has the same): counters that begin anew are put beyond it.
const proposalAhead = time.Second

// refuse records a server's error as the reason why the node has no vote. Other errors are
// the connection's, and returned.
func (l *lane) refuse(err error) error {
	if !redis.IsServerError(err) {
		return err
	}
	l.applyVote(admission.VoteStatus{State: admission.Refused, Reason: err})
	return nil
}

// applyVote makes a vote status known.
func (l *lane) applyVote(v admission.VoteStatus) {
	state := NodeState(v.State)
	l.session.epoch = ""
	if l.rules.votes(state) {
		l.session.epoch = v.Epoch
	}
	l.mu.Lock()
	l.until = v.Until
	l.mu.Unlock()
	l.setState(state, v.Reason, func() []int { return l.member.Applied(v.State, l.clock()) })
}

func (l *lane) noteWarnings(s *admission.Snapshot) {
	warnings := l.member.NoteFile(&s.Info.File)
	l.mu.Lock()
	l.warning = warnings
	l.mu.Unlock()
}

// checkTokens makes errors of answers with a fencing token that is not believed.
func (l *lane) checkTokens(ops []script.Operation, replies []Reply) {
	if letter := ops[0].Op; !letter.Takes() && letter != script.ReadCounters {
		return
	}
	bound := l.fleet.admission.TokenBound(l.heard)
	for i := range replies {
		reply := &replies[i]
		switch {
		case reply.Err != nil:
		case ops[i].Op == script.ReadCounters:
			reply.Err = l.checkCounters(reply.Array, bound)
		case ops[i].Op.Takes():
			if token := tokenOf(reply); token.IsNumber() {
				reply.Err = l.fleet.admission.CheckToken(string(ops[i].Counter[:]), script.FenceOf(token), bound)
			}
		}
	}
}

// tokenOf returns the fencing token, also of a hand-over that found the old one gone.
func tokenOf(reply *Reply) *Reply {
	if len(reply.Array) == 1 {
		return &reply.Array[0]
	}
	return reply
}

// checkCounters returns an error if one of a node's counters is not believed: then none
// is.
func (l *lane) checkCounters(fields []Reply, bound uint64) error {
	for i := 0; i+1 < len(fields); i += 2 {
		value, ok := script.ParseFence(fields[i+1].Str)
		if _, known := script.CounterIndex(fields[i].Str); !known || !ok {
			continue
		}
		if err := l.fleet.admission.CheckToken(fields[i].Str, value, bound); err != nil {
			return err
		}
	}
	return nil
}
