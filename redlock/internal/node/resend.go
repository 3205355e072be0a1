package node

import (
	"context"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// notExecuted has the errors with which a node reports that it executed nothing of a command, and
// whether the lane resends the command within the time of the request. The lane itself can remove
// the cause in that time only for NOSCRIPT:
//
//	NOSCRIPT    someone flushed the scripts (SCRIPT FLUSH). The lane loads them and resends
//	            the same calls: one more round trip, which no client notices.
//	LOADING     the node was restarted and reads its file, for seconds. A node that was
//	            restarted has no vote anyway, unless it is durable: other nodes decide.
//	BUSY        another program's script has run for busy-reply-threshold, 5 s by default,
//	            and may run for ever: other nodes decide within node_timeout.
//	READONLY    the node has become a replica. It has no vote any more: the next look,
//	            within a second, reports that, and how to fix it.
//	MASTERDOWN  a replica without its master, like READONLY.
//	OOM         the node is at its maxmemory, until someone fixes that. It is shown as
//	            refused, with the fix (refusal.go), and is probed every second.
//
// A call that fails so is repeated only if it is a release, with the pending releases at the next
// heartbeat.
var notExecuted = map[string]bool{
	"NOSCRIPT":   true,
	"LOADING":    false,
	"BUSY":       false,
	"READONLY":   false,
	"MASTERDOWN": false,
	"OOM":        false,
}

// isResent reports whether the lane resends a command with this answer.
func isResent(reply *redis.Reply) bool {
	if reply.Err == nil {
		return false
	}
	kind, _, _ := strings.Cut(reply.Err.Error(), " ")
	return notExecuted[kind]
}

// executedSpans returns how many spans of the group are not resent: all but the last ones, if the
// node executed none of these. Suppose that it executed a span after one that it did not execute
// (another daemon loaded the scripts in between). Then a release there may have overtaken its
// acquire, so that acquire fails and is not resent.
func (l *Lane) executedSpans() int {
	n := len(l.trip.spans)
	for n > 0 && isResent(&l.trip.replies[n-1]) {
		n--
	}
	return n
}

const errNoScript = redis.ServerError("NOSCRIPT the scripts were flushed")

// resendNotExecuted resends the calls of groups in progress that the node did not execute. All
// these groups were answered, so the node executed nothing after these calls.
func (l *Lane) resendNotExecuted(conn redis.Conn) error {
	calls := l.notExecuted
	l.notExecuted = nil
	ctx := &l.trip.deadline
	ctx.start(l.timing.silence)
	return l.resend(ctx, conn, calls)
}

// resend loads the scripts and resends calls that the node did not execute, in their order and
// before all later calls. It leaves out calls whose time has passed. The node timeout of the
// ballots continues meanwhile.
func (l *Lane) resend(ctx context.Context, conn redis.Conn, calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	now := l.clock()
	l.noteSent(now)
	if err := l.load(ctx, conn); err != nil {
		l.failGroup(calls, err)
		return err
	}
	if calls = l.withoutStale(calls, now); len(calls) == 0 {
		return nil
	}
	l.noteSent(now)
	l.appendGroup(calls)
	if err := l.roundTrip(ctx, conn); err != nil {
		l.failGroup(calls, err)
		return err
	}
	l.joinParts()
	if err := l.answerGroup(calls, len(l.trip.spans)); err != nil {
		return err
	}
	return nil
}
