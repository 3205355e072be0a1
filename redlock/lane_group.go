package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// sendWaiting sends everything that waits as one group, hands the answers to
// the voters, and does what the answers asked for. What is handed over meanwhile
// has woken the lane again. An error means that the connection is of no more
// use.
func (l *lane) sendWaiting(conn Conn) error {
	group := l.take()
	if len(group) > 0 || l.session.resync {
		if err := l.send(conn, group); err != nil {
			return err
		}
	}
	return l.lookAfter(conn)
}

// lookAfter loads the scripts where the node lost them and repeats the
// releases that it owes an answer to.
func (l *lane) lookAfter(conn Conn) error {
	if !l.session.scripts && !l.session.owed {
		return nil
	}
	ctx := &l.within
	ctx.start(l.timing.silence)
	if l.session.scripts {
		return l.reload(ctx, conn)
	}
	return l.repeatOwed(ctx, conn)
}

// take takes what waits and leaves out what would come too late.
func (l *lane) take() []call {
	now := l.clock()
	l.mu.Lock()
	group := l.queue
	l.queue, l.spare = l.spare[:0], group
	if len(group) > 0 || l.session.resync {
		l.sentAt = now
	}
	l.mu.Unlock()
	return l.rules.order(l.withoutStale(group, now))
}

func (l *lane) withoutStale(group []call, now time.Duration) []call {
	kept := group[:0]
	for i := range group {
		c := group[i]
		if c.notAfter == 0 || now < c.notAfter {
			kept = append(kept, c)
			continue
		}
		c.placed.remove(l.index)
		c.answer(l.index, nil, l.failure(&c, FailedTimeout, errStale))
	}
	clear(group[len(kept):])
	return kept
}

// span is a run of calls that travel in one command.
type span struct{ first, end int }

// maxOps bounds the operations in one command: 64 keys hold a node for about
// 0.13 ms, which everybody else's requests wait.
const maxOps = 64

// send is one round trip. TIME rides along where it is due.
func (l *lane) send(conn Conn, group []call) error {
	ctx := &l.within
	ctx.start(l.timing.silence)
	withTime := l.session.resync
	l.appendGroup(group)
	if withTime {
		l.appendCommand("TIME")
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		l.failGroup(group, err)
		return err
	}
	if withTime {
		l.readTime(&l.replies[len(l.spans)], l.took)
		l.forgetTrouble()
	}
	for i, span := range l.spans {
		l.answerSpan(group[span.first:span.end], &l.replies[i])
	}
	clear(group) // nothing is kept alive by an idle lane
	return nil
}

// appendGroup makes commands of the calls, in their order, many in one.
func (l *lane) appendGroup(group []call) {
	l.commands, l.spans = l.commands[:0], l.spans[:0]
	for first := 0; first < len(group); {
		end, ops := first+1, len(group[first].keys)
		for end < len(group) && ops+len(group[end].keys) <= maxOps {
			ops += len(group[end].keys)
			end++
		}
		l.appendCalls(group[first:end], ops)
		l.spans = append(l.spans, span{first, end})
		first = end
	}
}

func (l *lane) appendCalls(calls []call, ops int) {
	command := l.appendCommand("EVALSHA", ballotScript.SHA, strconv.Itoa(ops))
	for i := range calls {
		*command = append(*command, calls[i].keys...)
	}
	for i := range calls {
		*command = append(*command, calls[i].args...)
		if calls[i].notAfter != 0 {
			atNode := calls[i].notAfter + l.session.offset
			*command = append(*command, strconv.FormatInt(atNode.Microseconds(), 10))
		}
	}
}

// roundTrip sends l.commands and reads l.replies, by the deadline of ctx.
func (l *lane) roundTrip(ctx context.Context, conn Conn) error {
	l.replies = append(l.replies[:0], make([]Reply, len(l.commands))...)
	if len(l.commands) == 0 {
		l.noteAnswered(0)
		return nil
	}
	sent := time.Now()
	err := conn.Do(ctx, l.commands, l.replies)
	l.took = time.Since(sent)
	l.noteAnswered(l.took)
	if errors.Is(err, context.DeadlineExceeded) {
		return silence(l.took)
	}
	return err
}

func (l *lane) noteAnswered(rtt time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sentAt = 0
	if rtt > 0 {
		l.rtt = rtt
	}
}

// appendCommand appends to l.commands, whose slices are used again and again.
func (l *lane) appendCommand(words ...string) *Command {
	n := len(l.commands)
	if n < cap(l.commands) {
		l.commands = l.commands[:n+1]
	} else {
		l.commands = append(l.commands, nil)
	}
	command := &l.commands[n]
	*command = append((*command)[:0], words...)
	return command
}

// failGroup: the connection broke with the group under way. Nothing is known
// of any call in it.
func (l *lane) failGroup(group []call, err error) {
	kind := FailedDown
	if errors.As(err, new(silence)) {
		kind = FailedTimeout
	}
	l.mu.Lock()
	for i := range group {
		l.owe(&group[i])
	}
	l.mu.Unlock()
	for i := range group {
		group[i].answer(l.index, nil, l.failure(&group[i], kind, err))
	}
	clear(group)
}

// answerSpan hands the answers to one command to its calls.
func (l *lane) answerSpan(calls []call, reply *Reply) {
	replies := reply.Array
	for i := range calls {
		c := &calls[i]
		err := reply.Err
		if err == nil && len(replies) < len(c.keys) {
			err = errShort
		}
		if err != nil {
			l.refuse(c, err)
			continue
		}
		l.answerCall(c, replies[:len(c.keys)])
		replies = replies[len(c.keys):]
	}
}

var errShort = ServerError("ERR the node answered fewer operations than it was asked")

// answerCall: an error that concerns one operation alone is the failure of a
// call that has no other.
func (l *lane) answerCall(c *call, replies []Reply) {
	if len(replies) == 1 && replies[0].Err != nil {
		l.refuse(c, replies[0].Err)
		return
	}
	c.answer(l.index, replies, nil)
}

// refuse fails a call that the node answered with an error, and learns what
// the lane has to do about it.
func (l *lane) refuse(c *call, err error) {
	kind := FailedError
	switch {
	case isKind(err, "NOSCRIPT"):
		l.session.scripts = true
	case isKind(err, "LATE"):
		kind = FailedLate
		l.session.resync = true // it came in time, so the node's clock was stepped
	}
	l.mu.Lock()
	l.owe(c)
	l.trouble = fmt.Errorf("%s: %w", c.op, err)
	l.mu.Unlock()
	l.session.refused = true
	c.answer(l.index, nil, l.failure(c, kind, err))
}

// forgetTrouble ends the memory of errors once the node has answered none for a
// heartbeat.
func (l *lane) forgetTrouble() {
	if l.session.refused {
		l.session.refused = false
		return
	}
	l.mu.Lock()
	l.trouble = nil
	l.mu.Unlock()
}

// isKind tells whether a node's error begins with the word.
func isKind(err error, word string) bool {
	kind, _, _ := strings.Cut(err.Error(), " ")
	return kind == word
}
