package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// connect makes a connection that commands may be sent on. Where the last one
// broke, the order is restored first: the old connection is killed by its id,
// so that bytes still under way on it are never executed behind our back, and
// then every release that stayed unanswered is repeated.
func (l *Lane) connect(ctx context.Context) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timing.handshake)
	defer cancel()
	conn, err := l.node.Dial(ctx)
	if err != nil {
		return nil, dialError(err)
	}
	if err := l.handshake(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New("no answer to the log-in in time")
	}
	return err
}

// handshake finds out which Redis answers, ends the previous connection, repeats pending
// releases, and then finds out whether the node may vote. If the previous connection was
// silent, the node must answer a script before.
func (l *Lane) handshake(ctx context.Context, conn redis.Conn) error {
	s, err := l.identify(ctx, conn)
	if err != nil {
		return err
	}
	if err := l.reload(ctx, conn); err != nil {
		return err
	}
	if l.session.mustProbe { // CLIENT PAUSE … WRITE lets all else through
		if err := l.probe(ctx, conn); err != nil {
			return err
		}
	}
	return l.verify(ctx, conn, s)
}

// identify reads who answers and what its clock says, and ends the connection
// before this one.
func (l *Lane) identify(ctx context.Context, conn redis.Conn) (*admission.Snapshot, error) {
	l.session.epoch, l.session.listenerID, l.session.rights = "", 0, false
	l.commands = l.commands[:0]
	l.appendLook()
	looks := len(l.commands)
	if !l.node.Embedded {
		l.appendCommand("CLIENT", "ID")
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	s, err := l.readLook(l.replies[:looks])
	if err != nil || l.node.Embedded {
		return s, err
	}
	id := &l.replies[looks]
	if id.Err != nil {
		return nil, fmt.Errorf("CLIENT ID, which is needed to end this connection before the next one: %w", id.Err)
	}
	if !id.IsNumber() || id.Int <= 0 {
		return nil, l.noteMalformed(redis.UnexpectedAnswer("CLIENT ID", "a number", id))
	}
	return s, l.succeed(ctx, conn, id.Int, s.Info.RunID)
}

// NoConnection is an id that no connection has: to kill it shows, before it is
// needed, that the node lets us.
const NoConnection = 1 << 62

// succeed ends the last connection. It is forgotten only once it is dead. The
// ids of another process mean nothing, and its input died with it.
func (l *Lane) succeed(ctx context.Context, conn redis.Conn, id int64, runID string) error {
	old := int64(NoConnection)
	if l.session.clientID != 0 && runID == l.session.runID {
		old = l.rules.Predecessor(l.session.clientID)
	}
	if err := l.kill(ctx, conn, old); err != nil {
		return err
	}
	l.session.clientID, l.session.runID = id, runID
	return nil
}

func (l *Lane) kill(ctx context.Context, conn redis.Conn, id int64) error {
	l.commands = l.commands[:0]
	l.appendCommand("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	if err := l.replies[0].Err; err != nil {
		return fmt.Errorf("CLIENT KILL ID, which is needed to end the connection before this one: %w", err)
	}
	return nil
}

// readTime measures the node's clock against ours. The estimate never exceeds
// the true offset: a not-after that follows from it is never late. Where the last
// estimate is still possible, the greater one is the better one; where it is not,
// the node's clock was stepped.
func (l *Lane) readTime(reply *redis.Reply) (s admission.ClockSample) {
	if len(reply.Array) == 2 {
		s = admission.ReadClock(reply.Array[0].Str, reply.Array[1].Str, l.sent, l.heard)
	}
	if last := l.session.offset; s.Known && (last < s.Low || last > s.High) {
		l.session.offset = s.Low
	}
	return s
}

// reload loads the scripts and repeats the pending releases. After a broken connection
// only releases are sent again: nothing is known about the other calls.
func (l *Lane) reload(ctx context.Context, conn redis.Conn) error {
	if err := l.load(ctx, conn); err != nil {
		return err
	}
	return l.repeatPending(ctx, conn)
}

// load loads the scripts, at first and after somebody flushed them, and finds out what one of
// them can tell at once.
func (l *Lane) load(ctx context.Context, conn redis.Conn) error {
	l.commands = l.commands[:0]
	for _, script := range script.Scripts() {
		l.appendCommand("SCRIPT", "LOAD", script.Source)
	}
	l.appendRights()
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	for i, script := range script.Scripts() {
		if err := l.replies[i].Err; err != nil {
			return fmt.Errorf("SCRIPT LOAD: %w", err)
		}
		if l.replies[i].Str != script.SHA {
			return l.noteMalformed(redis.UnexpectedAnswer("SCRIPT LOAD", "the script's SHA1", &l.replies[i]))
		}
	}
	l.session.scripts = false
	return l.noteRights(l.replies[len(script.Scripts()):])
}

// repeatPending sends the releases that stayed unanswered, and forgets those that
// the node has answered now. One that it refuses (a script flushed again; or the script
// itself, as a replica does, or one with a full disk) is tried again at the next heartbeat.
func (l *Lane) repeatPending(ctx context.Context, conn redis.Conn) error {
	l.session.repeat = false
	for refused := false; !refused; {
		tokens := l.nextPending()
		if len(tokens) == 0 {
			return nil
		}
		if err := l.roundTrip(ctx, conn); err != nil {
			return err
		}
		for i := range l.replies {
			if reply := &l.replies[i]; reply.Err == nil && (!reply.IsList() || len(reply.Array) == 0) {
				return l.noteMalformed(redis.UnexpectedAnswer("release", "a list", reply))
			}
		}
		refused = l.settlePending(tokens)
	}
	return nil
}

// nextPending puts up to pendingGroup releases into l.commands.
func (l *Lane) nextPending() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropExpired()
	l.commands = l.commands[:0]
	var tokens []string
	for token := range l.pending {
		if tokens = append(tokens, token); len(tokens) == pendingGroup {
			break
		}
	}
	slices.Sort(tokens) // the same order in each simulation
	for _, token := range tokens {
		l.appendCalls([]Call{{Ops: l.pending[token].ops}})
	}
	return tokens
}

func (l *Lane) settlePending(tokens []string) (refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, token := range tokens {
		err := cmp.Or(l.replies[i].Err, l.replies[i].NestedError())
		if err == nil {
			delete(l.pending, token)
			continue
		}
		refused = true
		l.session.scripts = l.session.scripts || redis.IsKind(err, "NOSCRIPT")
	}
	return refused
}
