package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// sendAlone sends all waiting calls as one group, passes the answers to the voters, and does what
// the answers require. No other group is in progress. Calls that arrive meanwhile have woken the
// lane again. An error means that the connection is unusable.
func (l *Lane) sendAlone(conn redis.Conn) error {
	if len(l.notExecuted) > 0 {
		if err := l.resendNotExecuted(conn); err != nil {
			return err
		}
	}
	if l.admitting != nil {
		if err := l.admitEarly(conn); err != nil {
			return err
		}
	}
	if l.asksHosts != nil {
		if err := l.readHosts(conn); err != nil {
			return err
		}
	}
	if l.session.isOutdated {
		if err := l.followUp(conn); err != nil {
			return err
		}
	}
	group := l.nextCalls()
	if len(group) > 0 || l.session.needsLook {
		if err := l.send(conn, group); err != nil {
			return err
		}
	}
	return l.followUp(conn)
}

// followUp does what the answers require. It loads the scripts if the node lost them, finds out
// whether the node may still vote, and repeats unanswered releases.
func (l *Lane) followUp(conn redis.Conn) error {
	if !l.needsIdleConnection() {
		return nil
	}
	ctx := &l.trip.deadline
	ctx.start(l.timing.silence)
	if l.session.needsScripts {
		if err := l.load(ctx, conn); err != nil {
			return err
		}
		l.session.mustRepeat = true
	}
	if l.session.needsLook {
		if err := l.lookAgain(ctx, conn); err != nil {
			return err
		}
	}
	if l.session.needsPing {
		l.session.needsPing = false
		l.trip.commands = l.trip.commands[:0]
		l.appendCommand("PING")
		if err := l.roundTrip(ctx, conn); err != nil {
			return err
		}
	}
	if l.session.mustRepeat {
		if err := l.repeatPending(ctx, conn); err != nil {
			return err
		}
	}
	if l.session.needsProbe {
		if err := l.probe(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain finds out at once whether the node may still vote, after an answer that denied it.
func (l *Lane) lookAgain(ctx context.Context, conn redis.Conn) error {
	s, err := l.look(ctx, conn)
	if err != nil {
		return l.refuse(l.explainRefusal(ctx, conn, err))
	}
	return l.verify(ctx, conn, s)
}

// nextCalls takes a group of the urgent calls and a group of the others, in order, and drops calls that
// would arrive too late. If more calls wait, the lane stays awake.
func (l *Lane) nextCalls() []Call {
	now := l.clock()
	l.mu.Lock()
	group, n := l.queue, groupLength(l.queue, MaxGroup-l.window.ops)
	if n == len(l.queue) && len(l.urgent) == 0 {
		l.queue, l.spare = l.spare[:0], group
	} else {
		first := groupLength(l.urgent, MaxGroup)
		group = append(append(l.spare[:0], l.urgent[:first]...), l.queue[:n]...)
		l.urgent, l.queue, l.spare = slices.Delete(l.urgent, 0, first), slices.Delete(l.queue, 0, n), group
	}
	more := len(l.urgent) > 0 || len(l.queue) > 0
	l.mu.Unlock()
	if more {
		l.Wake()
	}
	group = l.withoutStale(group, now)
	if len(group) > 0 || l.session.needsLook {
		l.noteSent(now)
	}
	return group
}

// noteSent records that a group is in progress, until the node answers or the connection ends.
// (The lane calls it only when it has a group. Otherwise a lane that has nothing to send would
// seem to wait for its node.)
func (l *Lane) noteSent(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.oldestSentAt == 0 { // otherwise an older group is in progress
		l.oldestSentAt = now
	}
}

// MaxGroup bounds the operations in progress, in one group or several, because urgent calls wait
// for all of them: about a millisecond of a node's time. Larger groups are no faster.
const MaxGroup = 8 * MaxOps

// groupLength returns how many calls a group of at most maxOps operations has: at least one, if
// there is any.
func groupLength(queue []Call, maxOps int) int {
	ops := 0
	for i := range queue {
		if ops += len(queue[i].Ops); i > 0 && ops > maxOps {
			return i
		}
	}
	return len(queue)
}

// hasWaiting reports whether any call is not sent yet.
func (l *Lane) hasWaiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.urgent) > 0 || len(l.queue) > 0
}

func (l *Lane) withoutStale(group []Call, now time.Duration) []Call {
	kept := group[:0]
	for i := range group {
		c := group[i]
		if c.NotAfter == 0 || now < c.NotAfter {
			kept = append(kept, c)
			continue
		}
		c.markNotSent(l.index)
		release := c.Release
		c.Release = nil
		c.answer(l.index, nil, l.failure(&c, FailedTimeout, errStale))
		if release != nil {
			kept = append(kept, *release)
		}
	}
	clear(group[len(kept):])
	return kept
}

// span is a range of calls that are sent in one command, or one call that is sent in several.
type span struct{ first, end, commands int }

// MaxOps bounds the operations in one command. 64 keys occupy a node for about 0.13 ms, during
// which all other requests wait.
const MaxOps = 64

// send sends a group and processes the answers, in one round trip. If a look at the node is due,
// it is sent with the group. Calls that the node did not execute are resent.
func (l *Lane) send(conn redis.Conn, group []Call) error {
	ctx := &l.trip.deadline
	ctx.start(l.timing.silence)
	looks := l.session.needsLook
	l.appendGroup(group)
	if looks {
		l.appendLook()
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		l.failGroup(group, err)
		return err
	}
	l.joinParts()
	executed := l.executedSpans()
	var again []Call // the calls to resend
	if executed < len(l.trip.spans) {
		again = group[l.trip.spans[executed].first:]
	}
	if err := l.answerGroup(group, executed); err != nil {
		return err
	}
	rest := l.trip.replies[len(l.trip.spans):]
	if !looks {
		return l.resend(ctx, conn, again)
	}
	l.forgetTrouble()
	if len(group) == 0 {
		l.noteRead()
	}
	s, lookErr := l.readLook(rest)
	if err := l.resend(ctx, conn, again); err != nil {
		return err
	}
	if lookErr != nil {
		return l.refuse(l.explainRefusal(ctx, conn, lookErr))
	}
	return l.verify(ctx, conn, s)
}

// answerGroup passes the answers of the first spans to their calls. If an answer is
// malformed, it fails all calls of the group from there on.
func (l *Lane) answerGroup(group []Call, spans int) error {
	end := 0
	l.trip.wrote = false
	for i, span := range l.trip.spans[:spans] {
		calls := group[span.first:span.end]
		if err := checkSpan(calls, &l.trip.replies[i]); err != nil {
			l.failGroup(group[span.first:], err)
			return l.noteMalformed(err)
		}
		l.answerSpan(calls, &l.trip.replies[i])
		clear(l.trip.replies[i].Array)
		end = span.end
	}
	if l.trip.wrote {
		l.noteWrite()
	}
	clear(group[:end]) // so that an idle lane keeps nothing alive
	return nil
}

// noteMalformed records a malformed answer, which stays known over the next connection.
func (l *Lane) noteMalformed(err error) error {
	l.mu.Lock()
	l.lastError = err
	l.mu.Unlock()
	l.session.hasRefused = true
	return err
}

// appendGroup makes commands of the calls, in their order, with many calls in one command.
func (l *Lane) appendGroup(group []Call) {
	l.trip.commands, l.trip.spans = l.trip.commands[:0], l.trip.spans[:0]
	for first := 0; first < len(group); {
		end := first + l.spanLength(group[first:])
		commands := 1
		if group[first].isCut() {
			commands = l.appendParts(&group[first])
		} else {
			l.appendCalls(group[first:end])
		}
		l.trip.spans = append(l.trip.spans, span{first, end, commands})
		first = end
	}
}

// appendParts makes several commands of one call, and returns how many.
func (l *Lane) appendParts(c *Call) (commands int) {
	for ops := range slices.Chunk(c.Ops, maxReleases) {
		part := *c
		part.Ops = ops
		l.appendCalls([]Call{part})
		commands++
	}
	return commands
}

// joinParts makes one reply of those to a call that was sent in several commands. So each span has one.
func (l *Lane) joinParts() {
	for i, span := range l.trip.spans {
		if span.commands == 1 {
			continue
		}
		joined := redis.Reply{}
		for _, part := range l.trip.replies[i : i+span.commands] {
			joined.Err = cmp.Or(joined.Err, part.Err)
			joined.Array = append(joined.Array, part.Array...)
		}
		if joined.Err == nil && !slices.ContainsFunc(l.trip.replies[i:i+span.commands], func(r redis.Reply) bool { return !r.IsList() }) {
			l.trip.replies[i].Array = joined.Array
		} else {
			l.trip.replies[i].Err = joined.Err
		}
		l.trip.replies = slices.Delete(l.trip.replies, i+1, i+span.commands)
	}
}

// spanLength returns how many calls go into one command. They share its not-after time, the
// earliest of theirs. That is usually the first call's, unless a call took long to reach the
// lane.
func (l *Lane) spanLength(group []Call) int {
	ops, first, last := 0, time.Duration(0), time.Duration(0)
	for i := range group {
		c := &group[i]
		ops += c.weight()
		if c.isCut() {
			return max(i, 1)
		}
		if at := c.NotAfter; at != 0 {
			last = max(last, at)
			if first == 0 || at < first {
				first = at
			}
		}
		if i > 0 && (ops > MaxOps || last-first > l.timing.answer/5) {
			return i
		}
	}
	return len(group)
}

func (l *Lane) appendCalls(calls []Call) {
	ops, notAfter, epoch := 0, time.Duration(0), ""
	for i := range calls {
		ops += len(calls[i].Ops)
		if !calls[i].IsRelease() {
			epoch = l.session.epoch // releases need no vote: alone they save the node the check of its epoch
		}
		if at := calls[i].NotAfter; at != 0 && (notAfter == 0 || at < notAfter) {
			notAfter = at
		}
	}
	command := l.appendCommand("EVALSHA", script.Ballot.SHA, strconv.Itoa(1+ops), script.NodeKey)
	for i := range calls {
		for j := range calls[i].Ops {
			*command = append(*command, calls[i].Ops[j].Key)
		}
	}
	*command = l.encoder.Begin(*command, epoch, notAfter+l.session.offset)
	for i := range calls {
		for j := range calls[i].Ops {
			*command = l.encoder.Append(*command, &calls[i].Ops[j])
		}
	}
	l.encoder.End(*command)
}

// roundTrip sends l.trip.commands and reads l.trip.replies, by the deadline of ctx.
func (l *Lane) roundTrip(ctx context.Context, conn redis.Conn) error {
	l.trip.replies = slices.Grow(l.trip.replies[:0], len(l.trip.commands))[:len(l.trip.commands)]
	if len(l.trip.commands) == 0 {
		l.noteAnswered(0)
		return nil
	}
	l.trip.sent = l.clock()
	err := conn.Do(ctx, l.trip.commands, l.trip.replies)
	l.trip.received = l.clock()
	if err != nil {
		l.noteAnswered(0)
		return l.connectionError(l.trip.received-l.trip.sent, err)
	}
	l.noteTrip()
	return nil
}

// noteAnswered records that the oldest group is no longer in progress. rtt is 0 if it was not
// answered.
func (l *Lane) noteAnswered(rtt time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldestSentAt = 0
	if !l.window.isEmpty() {
		l.oldestSentAt = l.window.underWay[0].sent
	}
	if rtt > 0 {
		l.rtt = rtt
	}
}

// appendCommand appends to l.trip.commands, whose slices are reused.
func (l *Lane) appendCommand(words ...string) *redis.Command {
	n := len(l.trip.commands)
	if n < cap(l.trip.commands) {
		l.trip.commands = l.trip.commands[:n+1]
	} else {
		l.trip.commands = append(l.trip.commands, nil)
	}
	command := &l.trip.commands[n]
	*command = append((*command)[:0], words...)
	return command
}

// failGroup fails a group during which the connection broke. Whether its calls were executed is
// unknown.
func (l *Lane) failGroup(group []Call, err error) {
	kind := FailedDown
	if errors.As(err, new(Silence)) {
		kind = FailedTimeout
	}
	l.mu.Lock()
	for i := range group {
		l.addPendingLocked(&group[i])
	}
	l.mu.Unlock()
	for i := range group {
		group[i].answer(l.index, nil, l.failure(&group[i], kind, err))
	}
	clear(group)
}

// answerSpan passes the answers to one command, which were checked, to its calls.
func (l *Lane) answerSpan(calls []Call, reply *redis.Reply) {
	replies := reply.Array
	for i := range calls {
		c := &calls[i]
		if reply.Err != nil {
			l.fail(c, reply.Err)
			continue
		}
		l.answerCall(c, replies[:len(c.Ops)])
		replies = replies[len(c.Ops):]
	}
}

// answerCall passes the answers to one call. An error of one operation fails its call, unless the
// call is for several leases. An error that denies the node's vote fails the call in any case.
func (l *Lane) answerCall(c *Call, replies []redis.Reply) {
	l.checkFences(c.Ops, replies)
	if !c.IsRelease() && l.member.IsSuperseded() {
		l.fail(c, admission.ErrSuperseded)
		return
	}
	for i := range replies {
		if err := replies[i].Err; err != nil && (!c.Several || deniesVote(err)) {
			l.fail(c, err)
			return
		}
	}
	l.trip.wrote = l.trip.wrote || c.hasWritten(replies)
	c.noteAnswer(l.index, replies)
	c.answer(l.index, replies, nil)
}

// fail fails a call that the node answered with an error, and records what the lane must do about
// it.
func (l *Lane) fail(c *Call, err error) {
	kind := FailedError
	switch {
	case redis.IsKind(err, "NOSCRIPT"):
		l.session.needsScripts = true
	case deniesVote(err):
		kind = FailedQuarantined
		l.session.needsLook, l.session.isOutdated = true, true
		if redis.IsKind(err, "COUNTERS") {
			l.member.NoteCountersGone()
		}
	case redis.IsKind(err, "LATE"):
		kind = FailedLate
		l.session.needsLook = true // the call was sent in time, so the node's clock was stepped
	case redis.IsKind(err, "WRONGTYPE"):
		err = fmt.Errorf("%w%s", err, wrongTypeHelp)
	}
	l.mu.Lock()
	l.addPendingLocked(c)
	l.lastError = fmt.Errorf("%s: %w", c.Op, err)
	l.mu.Unlock()
	if l.denyFor(c.Op, err) {
		l.deniedAt = c.Ops[0].Key
	}
	l.session.mustRepeat = l.session.mustRepeat || c.Release != nil
	l.session.hasRefused = true
	c.answer(l.index, nil, l.failure(c, kind, err))
}

// wrongTypeHelp names no key: a waiter must not learn the names of other locks.
const wrongTypeHelp = " (somebody else wrote to the lock's key, which is its name behind key_prefix, or to redlockd:node: TYPE shows it; DEL it there if nobody needs it, or use another key_prefix)"

// deniesVote reports whether a node's error means that it is not, or no longer, the admitted
// incarnation.
func deniesVote(err error) bool {
	return redis.IsKind(err, "EPOCH") || redis.IsKind(err, "COUNTERS") || errors.Is(err, admission.ErrSuperseded)
}

// forgetTrouble clears the last error once the node has answered without errors for a heartbeat.
func (l *Lane) forgetTrouble() {
	if l.session.hasRefused {
		l.session.hasRefused = false
		return
	}
	l.mu.Lock()
	l.lastError = nil
	l.mu.Unlock()
}
