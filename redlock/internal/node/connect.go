package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// connect makes a connection that is ready for commands. If the last one broke, connect restores
// the order first. It kills the old connection by its id, so that the node never executes bytes
// that are still in transit on it. Then it repeats every unanswered release.
func (l *Lane) connect(ctx context.Context) (redis.Conn, error) {
	var pulsing sync.WaitGroup
	defer pulsing.Wait()
	ctx, cancel := context.WithTimeout(ctx, l.retry.loginLimit())
	defer cancel()
	pulsing.Go(func() { l.pulse(ctx) })
	l.minRoundTrip, l.minWrite = minRoundTrip{}, minRoundTrip{}
	conn, err := l.dial(ctx)
	switch {
	case isAtNode(err):
		return nil, &atNode{l.dialError(err)}
	case err != nil:
		return nil, l.dialError(err)
	}
	if err := l.handshake(ctx, conn); err != nil {
		err = l.handshakeError(l.explainRefusal(ctx, conn, err), conn)
		conn.Close()
		return nil, &atNode{err}
	}
	l.connections.Add(1)
	return conn, nil
}

// pulse counts rounds while the lane waits for its node, until ctx ends: see Rounds.
func (l *Lane) pulse(ctx context.Context) {
	tick := time.NewTicker(heartbeat / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.rounds.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

// dial connects and logs in. If the node takes long, dial says so, and continues to wait: the node
// would have to do the same work for the next attempt.
func (l *Lane) dial(ctx context.Context) (conn redis.Conn, err error) {
	done := make(chan struct{})
	go func() { // dial waits for it
		defer close(done)
		conn, err = l.node.Dial(redis.WithConnectLimit(ctx, l.timing.connect))
	}()
	slow := time.NewTimer(2 * l.timing.connect) // by then the network has connected, or err says that it has not
	defer slow.Stop()
	select {
	case <-done:
		return conn, err
	case <-slow.C:
	}
	l.failWaiting(errNoLogin)
	l.settle()
	<-done
	return conn, err
}

// dialError explains a failed log-in.
func (l *Lane) dialError(err error) error {
	if l.node.Database != 0 && refusalOf(err) == "command" { // every user may log in
		return &RightsError{User: l.user(), Missing: []string{"+select"}, Fix: l.rightsFix([]string{"+select"})}
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	late := new(redis.LoginError)
	switch errors.As(err, &late); {
	case late.Connect > l.timing.answer:
		return l.far(late.Connect)
	case late.Connect > 0:
		return errNoLogin
	}
	return errNoConnection
}

var (
	errNoLogin      = errors.New("no answer to the login in time, although it accepts connections: Redis hangs there")
	errNoConnection = errors.New("no answer to a connection in time: its host is down or hangs, or a firewall drops the packets")
)

// handshakeError explains a node that answered the log-in, but was silent later.
func (l *Lane) handshakeError(err error, conn redis.Conn) error {
	if !errors.As(err, new(Silence)) {
		return err
	}
	trip := l.minRoundTrip.shortest()
	if c, ok := conn.(interface{ ConnectTime() time.Duration }); ok && trip == 0 {
		trip = c.ConnectTime()
	}
	if trip > l.timing.answer {
		return l.far(trip)
	}
	return fmt.Errorf("%w after the login: Redis hangs there", Silence(l.retry.loginLimit()))
}

// far returns the error of a node whose answers take longer than node_timeout because of the
// network.
func (l *Lane) far(trip time.Duration) error { return &FarError{Trip: trip, Timeout: l.timing.answer} }

// noteDistance records whether even the fastest answers of the node come after node_timeout. Such a
// node counts as down. It reports whether that has changed.
func (l *Lane) noteDistance(trip time.Duration) (changed bool) {
	if trip <= l.timing.answer {
		trip = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = (l.farTrip == 0) != (trip == 0)
	l.farTrip = trip
	return changed
}

// notePace records whether even the fastest calls that wrote were answered after node_timeout. The node
// then grants nothing in time, however fast it reads, and counts as down. Calls are still sent to it. It
// reports whether that has changed.
func (l *Lane) notePace(trip time.Duration) (changed bool) {
	if trip <= l.timing.answer {
		trip = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = (l.slowWrite == 0) != (trip == 0)
	l.slowWrite = trip
	return changed
}

// mayWriteSlowly reports whether a probe should measure how long the node takes to write.
func (l *Lane) mayWriteSlowly() bool {
	return l.slowWrite > 0 || l.writeTrip > l.timing.answer // only this goroutine writes these
}

// explainSilence returns the error for a connection that broke. If the node is known to write slowly,
// a silence is no news.
func (l *Lane) explainSilence(err error) error {
	if l.slowWrite > 0 && errors.As(err, new(Silence)) {
		return l.writesSlowly(l.slowWrite)
	}
	return err
}

// writesSlowly returns the error of a node that takes longer than node_timeout to write.
func (l *Lane) writesSlowly(trip time.Duration) error {
	return &SlowWriteError{Trip: trip, Timeout: l.timing.answer}
}

// handshake finds out which Redis process answers, ends the previous connection, and repeats
// pending releases. Then it finds out whether the node may vote.
func (l *Lane) handshake(ctx context.Context, conn redis.Conn) error {
	s, err := l.identify(ctx, conn)
	if err != nil {
		return err
	}
	if err := l.load(ctx, conn); err != nil {
		return err
	}
	return l.writeError(l.beginWriting(ctx, conn, s))
}

// beginWriting does the part of a handshake in which the node writes. If the previous connection was
// silent, or the node wrote slowly, it must first answer a script that writes.
func (l *Lane) beginWriting(ctx context.Context, conn redis.Conn, s *admission.Snapshot) error {
	if err := l.repeatPending(ctx, conn); err != nil { // only releases: the state of other calls is unknown
		return err
	}
	if l.session.mustProbe || l.slowWrite > 0 { // CLIENT PAUSE … WRITE lets all other commands through
		l.session.epoch = s.Epoch // not verified: no call is sent before verify
		err := l.probe(ctx, conn)
		l.session.epoch = ""
		if err != nil {
			return err
		}
	}
	l.noteDistance(l.minRoundTrip.shortest())
	l.notePace(cmp.Or(l.minWrite.shortest(), l.slowWrite))
	return l.verify(ctx, conn, s)
}

// writeError explains a node that is near and answered what it could answer by reading, but no script.
func (l *Lane) writeError(err error) error {
	var silence Silence
	if !errors.As(err, &silence) || l.minRoundTrip.shortest() > l.timing.answer {
		return err
	}
	return &SlowWriteError{Trip: time.Duration(silence), Timeout: l.timing.answer, AtLeast: true}
}

// identify reads which Redis process answers and what its clock shows, and ends the previous
// connection.
func (l *Lane) identify(ctx context.Context, conn redis.Conn) (*admission.Snapshot, error) {
	l.session.epoch, l.session.needsRights, l.session.isShort, l.session.info = "", false, false, nil
	l.trip.commands = l.trip.commands[:0]
	l.appendLook()
	looks := len(l.trip.commands)
	if !l.node.Embedded {
		l.appendCommand("CLIENT", "ID")
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	l.noteRead()
	s, err := l.readLook(l.trip.replies[:looks])
	if err != nil || l.node.Embedded {
		return s, err
	}
	id := &l.trip.replies[looks]
	if id.Err != nil {
		return nil, fmt.Errorf("CLIENT ID, which is needed to end this connection before the next one: %w", id.Err)
	}
	if !id.IsNumber() || id.Int <= 0 {
		return nil, l.noteMalformed(redis.UnexpectedAnswer("CLIENT ID", "a number", id))
	}
	return s, l.endPreviousConnection(ctx, conn, id.Int, s.Info.RunID)
}

// noConnection is an id that no connection has. An attempt to kill it shows early whether the
// node allows CLIENT KILL.
const noConnection = 1 << 62

// endPreviousConnection ends the previous connection, and forgets it only once it is dead. The ids
// of another Redis process have no meaning here: its connections ended with it.
func (l *Lane) endPreviousConnection(ctx context.Context, conn redis.Conn, id int64, runID string) error {
	old := int64(noConnection)
	if l.session.clientID != 0 && runID == l.session.runID {
		old = l.session.clientID
	}
	l.trip.commands = l.trip.commands[:0]
	l.appendCommand("CLIENT", "KILL", "ID", strconv.FormatInt(old, 10))
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	if err := l.trip.replies[0].Err; err != nil {
		return fmt.Errorf("CLIENT KILL ID, which is needed to end the connection before this one: %w", err)
	}
	l.session.clientID, l.session.runID = id, runID
	return nil
}

// readTime measures the offset of the node's clock. The estimate never exceeds the true offset,
// so a not-after time that follows from it is never late. If the last estimate is still possible,
// the larger one is better. If it is not, the node's clock was stepped.
func (l *Lane) readTime(reply *redis.Reply) (s admission.ClockSample) {
	if len(reply.Array) == 2 {
		s = admission.ReadClock(reply.Array[0].Str, reply.Array[1].Str, l.trip.sent, l.trip.received)
	}
	if last := l.session.offset; s.Known && (last < s.Low || last > s.High) {
		l.session.offset = s.Low
	}
	return s
}

// load loads the scripts, at the start and after a SCRIPT FLUSH. In the same round trip it reads
// the missing rights.
func (l *Lane) load(ctx context.Context, conn redis.Conn) error {
	l.trip.commands = l.trip.commands[:0]
	for _, script := range script.Scripts() {
		l.appendCommand("SCRIPT", "LOAD", script.Source)
	}
	l.appendRights()
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	for i, script := range script.Scripts() {
		if err := l.trip.replies[i].Err; err != nil {
			return fmt.Errorf("SCRIPT LOAD: %w", err)
		}
		if l.trip.replies[i].Str != script.SHA {
			return l.noteMalformed(redis.UnexpectedAnswer("SCRIPT LOAD", "the script's SHA1", &l.trip.replies[i]))
		}
	}
	l.session.needsScripts = false
	return l.noteRights(l.trip.replies[len(script.Scripts()):])
}

// repeatPending sends the unanswered releases, and forgets those that the node has now
// answered. If the node rejects one, the next heartbeat retries it. (The scripts were
// flushed again, or the node is a replica or has a full disk.)
func (l *Lane) repeatPending(ctx context.Context, conn redis.Conn) error {
	l.session.mustRepeat = false
	for refused := false; !refused; {
		tokens := l.nextPending()
		if len(tokens) == 0 {
			return nil
		}
		if err := l.roundTrip(ctx, conn); err != nil {
			return err
		}
		for i := range l.trip.replies {
			if reply := &l.trip.replies[i]; reply.Err == nil && (!reply.IsList() || len(reply.Array) == 0) {
				return l.noteMalformed(redis.UnexpectedAnswer("release", "a list", reply))
			}
		}
		refused = l.settlePending(tokens)
	}
	return nil
}

// nextPending puts up to pendingGroup releases into l.trip.commands.
func (l *Lane) nextPending() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropExpiredLocked()
	l.trip.commands = l.trip.commands[:0]
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
		err := cmp.Or(l.trip.replies[i].Err, l.trip.replies[i].NestedError())
		if err == nil {
			delete(l.pending, token)
			continue
		}
		refused = true
		l.session.needsScripts = l.session.needsScripts || redis.IsKind(err, "NOSCRIPT")
	}
	return refused
}
