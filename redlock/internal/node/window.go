package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Several groups can be in progress on the lane's connection: each is sent after the others,
// before these are answered. So a call does not wait for half a round trip until it is sent. The
// node executes the groups in order, and the lane processes the answers in order.
//
// These need the whole connection and wait until no group is in progress: a look at the node,
// loading scripts, resending calls, and repeating releases. Then nothing is sent
// between TIME and the clock readings before and after it, and no answer is older than a change
// of the epoch.

const (
	// MaxUnderWay bounds the groups in progress. 64 workers over a network of 2 ms took a lock
	// and released it in 4.4 round trips with 1 group in progress, in 3.8 with 4, in 3.6 with 8,
	// in 3.4 with 16 (median, on two busy processors).
	MaxUnderWay = 16

	// minGroupInterval is the least average time between groups in a full window. Each group
	// costs both sides some 20 µs of processor time, for system calls and wake-ups.
	minGroupInterval = 125 * time.Microsecond

	// pipelineFrom is the round trip from which on several groups are in progress. On faster
	// networks, on one host or in one rack, processors are the bottleneck, and large groups need
	// less.
	pipelineFrom = 300 * time.Microsecond

	// maxSpareCalls is the largest group whose memory is kept for the next one.
	maxSpareCalls = 64
)

// roundTrip is a group of commands and the node's replies to them.
type roundTrip struct {
	calls    []Call
	spans    []span // which calls are in which command
	commands []redis.Command
	replies  []redis.Reply
	sent     time.Duration // BootTime before it was sent
	received time.Duration // BootTime after it was answered
	deadline tripContext   // the context in which it is sent and answered
	err      error
	wrote    bool // one of the answers shows that the node has written
}

// window has the groups in progress on one connection. Only the lane's goroutine uses it, with
// two exceptions: the two channels, and the replies and err of groups in toReceive.
type window struct {
	conn      redis.Conn
	underWay  []*roundTrip // the oldest first
	ops       int          // operations in these groups
	free      []*roundTrip // to be reused
	toReceive chan *roundTrip
	received  chan *roundTrip // closed when the receiver has ended
}

// receiveAll receives the replies to groups in the order in which they were sent. After an error,
// it receives nothing more.
func receiveAll(conn redis.Conn, clock func() time.Duration, toReceive <-chan *roundTrip, received chan<- *roundTrip) {
	defer close(received)
	var err error
	for trip := range toReceive {
		if err == nil {
			err = conn.Receive(&trip.deadline, trip.replies)
		}
		trip.received, trip.err = clock(), err
		received <- trip
	}
}

func (w *window) isEmpty() bool { return len(w.underWay) == 0 }

func countOps(calls []Call) (n int) {
	for i := range calls {
		n += len(calls[i].Ops)
	}
	return n
}

// minRoundTrip is the shortest round trip since the heartbeat before the last: the time of the
// network, without the time of the node and of earlier groups. 0: unknown.
type minRoundTrip struct{ current, previous time.Duration }

func (f *minRoundTrip) note(trip time.Duration) {
	if f.current == 0 || trip < f.current {
		f.current = trip
	}
}

// age forgets what was measured before the last heartbeat.
func (f *minRoundTrip) age() { f.previous, f.current = f.current, 0 }

// shortest returns the shortest round trip; 0: unknown.
func (f *minRoundTrip) shortest() time.Duration {
	if f.current == 0 || f.previous != 0 && f.previous < f.current {
		return f.previous
	}
	return f.current
}

// isSettled reports whether the node has answered before and after the last heartbeat.
func (f *minRoundTrip) isSettled() bool { return f.current != 0 && f.previous != 0 }

// limit returns how many groups may be in progress over such a network.
func (f *minRoundTrip) limit() int {
	trip := f.shortest()
	if trip < pipelineFrom {
		return 1
	}
	return min(2+int(trip/minGroupInterval), MaxUnderWay)
}

// limit returns how many groups may be in progress now. If the last answer took much longer than
// the network, or the next one does, the groups wait at the node. More groups would then only
// make each call wait longer, including an urgent one.
func (l *Lane) limit() int { return l.hooks.GroupsUnderWay(l.measuredLimit()) }

func (l *Lane) measuredLimit() int {
	late := l.minRoundTrip.shortest() + l.timing.answer/5
	if l.rtt > late || !l.window.isEmpty() && l.clock()-l.window.underWay[0].sent > late {
		return 1
	}
	return l.minRoundTrip.limit()
}

// needsIdleConnection reports whether something waits that must be sent alone.
func (l *Lane) needsIdleConnection() bool {
	s := &l.session
	return s.needsScripts || s.mustRepeat || s.needsLook || s.needsPing || s.needsProbe || len(l.notExecuted) > 0 || l.admitting != nil || l.asksHosts != nil
}

// canSend reports whether a waiting call can be sent now.
func (l *Lane) canSend() bool {
	if l.window.isEmpty() {
		return true
	}
	return !l.needsIdleConnection() && len(l.window.underWay) < l.limit() && l.window.ops < MaxGroup
}

// sendWaiting sends waiting calls, after the groups in progress. If something needs the whole
// connection, or the round trip is short, it sends them only if no group is in progress, and
// waits for the answers. An error means that the connection is unusable.
func (l *Lane) sendWaiting(conn redis.Conn) error {
	for l.canSend() {
		if l.window.isEmpty() && (l.needsIdleConnection() || l.limit() == 1) {
			return l.sendAlone(conn)
		}
		group := l.nextCalls()
		if len(group) == 0 {
			return nil // if more calls wait, nextCalls has woken the lane
		}
		if err := l.sendPipelined(conn, group); err != nil {
			return err
		}
	}
	return nil
}

// sendPipelined sends a group after those in progress.
func (l *Lane) sendPipelined(conn redis.Conn, group []Call) error {
	w := &l.window
	if w.toReceive == nil {
		w.toReceive, w.received = make(chan *roundTrip, MaxUnderWay), make(chan *roundTrip, MaxUnderWay)
		go receiveAll(w.conn, l.clock, w.toReceive, w.received) // closeWindow ends it, and waits for it
	}
	trip := &roundTrip{}
	if last := len(w.free) - 1; last >= 0 {
		trip, w.free = w.free[last], w.free[:last]
	}
	trip.calls = append(trip.calls[:0], group...)
	clear(group)
	l.trip = trip
	defer func() { l.trip = &l.alone }()
	trip.deadline.start(l.timing.silence)
	l.appendGroup(trip.calls)
	trip.replies = slices.Grow(trip.replies[:0], len(trip.commands))[:len(trip.commands)]
	trip.sent = l.clock()
	w.underWay = append(w.underWay, trip)
	w.ops += countOps(trip.calls)
	if err := conn.Send(&trip.deadline, trip.commands); err != nil {
		return l.connectionError(l.clock()-trip.sent, err)
	}
	w.toReceive <- trip
	return nil
}

// processReply processes the answer to the oldest group in progress. It passes the answers to the
// calls of the group, and keeps the calls to resend.
func (l *Lane) processReply(trip *roundTrip) error {
	l.trip = trip
	defer func() { l.trip = &l.alone }()
	if trip.err != nil {
		return l.connectionError(trip.received-trip.sent, trip.err)
	}
	w := &l.window
	w.underWay = slices.Delete(w.underWay, 0, 1)
	w.ops -= countOps(trip.calls)
	l.noteTrip()
	l.joinParts()
	executed := l.executedSpans()
	if executed > 0 {
		for i := range l.notExecuted {
			l.fail(&l.notExecuted[i], errNoScript) // a release in a later group may have overtaken its acquire
		}
		clear(l.notExecuted)
		l.notExecuted = l.notExecuted[:0]
	}
	var again []Call
	if executed < len(trip.spans) {
		again = trip.calls[trip.spans[executed].first:]
	}
	if err := l.answerGroup(trip.calls, executed); err != nil {
		return err
	}
	l.notExecuted = append(l.notExecuted, again...)
	clear(again)
	if cap(trip.calls) <= maxSpareCalls {
		w.free = append(w.free, trip)
	}
	return nil
}

// receiveOldest waits for the answer to the oldest group in progress, and processes it.
func (l *Lane) receiveOldest() error { return l.processReply(<-l.window.received) }

// closeWindow ends the connection and the receiver, after cause. Groups that were answered before
// that count as answered. All other groups may have been executed.
func (l *Lane) closeWindow(cause error) {
	w := &l.window
	w.conn.Close()
	if w.toReceive != nil {
		close(w.toReceive)
		malformed := errors.As(cause, new(*redis.AnswerError))
		for trip := range w.received {
			if trip.err == nil && !malformed {
				malformed = l.processReply(trip) != nil
			}
		}
	}
	for _, trip := range w.underWay { // the node may have executed each of them
		l.failGroup(trip.calls, cause)
	}
	l.failGroup(l.notExecuted, cause)
	l.notExecuted = nil
	l.window = window{}
	l.noteAnswered(0)
	if l.admitting != nil {
		l.admitting <- struct{}{}
		l.admitting = nil
	}
	l.answerHosts(hosts{err: cause})
}

// connectionError returns the error of a connection that failed after trip.
func (l *Lane) connectionError(trip time.Duration, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Silence(trip)
	case errors.As(err, new(*redis.AnswerError)):
		return l.noteMalformed(err)
	}
	return err
}

// noteRead records how long the node took for a look, unless that wrote: see appendAlive.
func (l *Lane) noteRead() {
	if l.lookShowsHost {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readTrip = l.trip.received - l.trip.sent
}

// noteWrite records how long the node took for calls that wrote. If it syncs its append-only file
// always, it answers those, and no others, only when its disk has them.
func (l *Lane) noteWrite() {
	took := l.trip.received - l.trip.sent
	l.minWrite.note(took)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeTrip = took
}

// noteTrip records an answered round trip.
func (l *Lane) noteTrip() {
	took := l.trip.received - l.trip.sent
	l.noteAnswered(took)
	l.minRoundTrip.note(took)
	if l.onRoundTrip != nil {
		l.onRoundTrip(l.node.Name, took)
	}
}
