package node

import (
	"context"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// notExecuted are the errors with which a node says that it executed nothing of a command,
// and whether the lane sends the command again within the time of the request. Nothing but
// NOSCRIPT has a cause that the lane itself can remove in that time:
//
//	NOSCRIPT    someone flushed the scripts (SCRIPT FLUSH). The lane loads them and sends
//	            the same calls again: one round trip more, and nobody notices.
//	LOADING     the node was restarted and reads its file, for seconds. A node that was
//	            restarted has no vote anyway, unless it is durable: other nodes decide.
//	BUSY        a script of someone else has been running for busy-reply-threshold, 5 s by
//	            default, and may run for ever: other nodes decide within node_timeout.
//	READONLY    the node has become a replica. It has no vote any more: the next look,
//	            within a second, says so, and how to fix it.
//	MASTERDOWN  a replica without its master. As READONLY.
//	OOM         the node is at its maxmemory. It stays so until someone acts: it is shown
//	            as refused, with the fix (denial.go), and is probed every second.
//
// A call that fails so is repeated only if it is a release, as a part of the pending
// releases: at the next heartbeat.
var notExecuted = map[string]bool{
	"NOSCRIPT":   true,
	"LOADING":    false,
	"BUSY":       false,
	"READONLY":   false,
	"MASTERDOWN": false,
	"OOM":        false,
}

// isResent tells whether the lane sends a command again that was answered so.
func isResent(reply *redis.Reply) bool {
	if reply.Err == nil {
		return false
	}
	kind, _, _ := strings.Cut(reply.Err.Error(), " ")
	return notExecuted[kind]
}

// executedSpans returns how many spans of the group are not to be sent again: all but the
// last ones, if the node executed none of these. If it executed a span behind one that it
// did not execute (another daemon loaded the scripts in between), a release there may have
// overtaken its acquire: so that acquire fails, and is not sent again.
func (l *Lane) executedSpans() int {
	n := len(l.exchange.spans)
	for n > 0 && isResent(&l.exchange.replies[n-1]) {
		n--
	}
	return n
}

// failNotExecuted fails the calls that were to be sent again, because the node has executed
// a group behind them: a release there may have overtaken its acquire.
func (l *Lane) failNotExecuted() {
	for i := range l.notExecuted {
		l.fail(&l.notExecuted[i], errNoScript)
	}
	clear(l.notExecuted)
	l.notExecuted = l.notExecuted[:0]
}

const errNoScript = redis.ServerError("NOSCRIPT the scripts were flushed")

// resendNotExecuted sends the calls again that the groups under way had and the node did not
// execute. All these groups were answered: the node executed nothing behind the calls.
func (l *Lane) resendNotExecuted(conn redis.Conn) error {
	calls := l.notExecuted
	l.notExecuted = nil
	ctx := &l.exchange.deadline
	ctx.start(l.timing.silence)
	return l.resend(ctx, conn, calls)
}

// resend loads the scripts and resends calls that the node did not execute, in their
// order and before everything that was handed over since. It leaves out calls whose
// time has passed. The node timeout of the ballots continues meanwhile.
func (l *Lane) resend(ctx context.Context, conn redis.Conn, calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	now := l.clock()
	l.noteAsked(now)
	if err := l.load(ctx, conn); err != nil {
		l.failGroup(calls, err)
		return err
	}
	if calls = l.withoutStale(calls, now); len(calls) == 0 {
		return nil
	}
	l.noteAsked(now)
	l.appendGroup(calls)
	l.appendSubscriptions(calls)
	if err := l.roundTrip(ctx, conn); err != nil {
		l.failGroup(calls, err)
		return err
	}
	if err := l.answerGroup(calls, len(l.exchange.spans)); err != nil {
		return err
	}
	if _, err := l.readSubscriptions(l.exchange.replies[len(l.exchange.spans):], 0); err != nil {
		return l.noteMalformed(err)
	}
	return nil
}
