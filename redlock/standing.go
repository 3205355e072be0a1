package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// standing is whether a node may vote.
type standing struct {
	state  NodeState // NodeReady, NodeQuarantined or NodeRefused
	epoch  string    // that was seen: votes are wanted of it alone
	reason error     // why it is refused; or what a quarantine waits for
	until  time.Duration
}

// ruling is what follows from a sighting: a standing, or a new epoch that is
// to be written before the next sighting.
type ruling struct {
	standing
	write   *epoch
	records []byte // the counters that go with it; nil: they stay as they are
}

// What a lane remembers of its node, over all connections.
type memory struct {
	marker    epoch         // the quarantine that is waited for
	early     bool          // it is to end now: somebody knows that no lock is held
	markedAt  time.Duration // BootTime when that was first seen
	markedIn  uint64        // and in whose turn
	word      string        // of the last admitted epoch; and, since that run_id, what was seen under it:
	runID     string
	replID    string
	uptime    int64
	evicted   int64
	outdoneAt time.Duration // BootTime when an epoch was seen that was not the last one; 0: never
	watch     clockWatch
	jumpSince uint64 // the turn of the last sample before the jump that watch shows

	// localUntil is when this process, and no other, believes the node again:
	// see judgeJump.
	localUntil time.Duration

	countersGone bool          // it said so itself
	fileWhole    bool          // its append-only file has every vote, as far as was seen
	durableFrom  time.Duration // BootTime from which on its file has every vote that still counts
}

// maxRewrites bounds how often an epoch is written in a row; then the others
// who write it as well have their turn.
const maxRewrites = 5

// verify finds out whether the node may vote, and writes its epoch where that
// is due: the marker of a quarantine, the end of one, a larger max_ttl.
func (l *lane) verify(ctx context.Context, conn Conn, s *sighting) error {
	l.noteWarnings(s)
	var v ruling
	for range maxRewrites {
		if v = l.judge(ctx, s); v.write == nil {
			l.stand(v.standing)
			if told, err := l.tellWords(ctx, conn, s, v.state); told || err != nil {
				return err
			}
		} else if err := l.rewrite(ctx, conn, s, v.write.String(), v.records, l.toTell(s)); err != nil {
			return l.refuse(err)
		}
		var err error
		if s, err = l.look(ctx, conn); err != nil {
			return l.refuse(err)
		}
	}
	if v.write != nil {
		l.stand(standing{state: NodeQuarantined, reason: errRestless})
	}
	return nil
}

// tellWords writes to the node what it does not say of the others yet. told is false where
// somebody else has written there since. Where it fails, it is tried again with the next look.
func (l *lane) tellWords(ctx context.Context, conn Conn, s *sighting, state NodeState) (told bool, err error) {
	words := l.fleet.words.owed(l.index)
	if state == NodeRefused || words == "" {
		return true, nil
	}
	err = l.rewrite(ctx, conn, s, s.epoch, nil, words)
	switch {
	case redis.IsServerError(err):
		return true, nil
	case err != nil || l.replies[0].Int != 1:
		return false, err
	}
	l.fleet.lookAt(l.fleet.words.note(l.index, words, l.heard))
	return true, nil
}

// toTell is what is written to the node beside an epoch. What stands there is taken in before,
// or it would be written over: that of an epoch which is none any more was not looked at.
func (l *lane) toTell(s *sighting) string {
	if l.fleet.options.NoQuarantine {
		return ""
	}
	l.fleet.lookAt(l.fleet.words.note(l.index, s.words, s.at))
	return l.fleet.words.owed(l.index)
}

var errRestless = errors.New("its epoch is being written by others all the time; it is looked at again in a second")

// judge says what follows from a sighting.
func (l *lane) judge(ctx context.Context, s *sighting) ruling {
	if err := s.info.refusal(); err != nil {
		return refusedFor(err)
	}
	if s.epoch == "" {
		return l.mark(s, false)
	}
	e, err := parseEpoch(s.epoch)
	switch {
	case err != nil:
		return refusedFor(err)
	case e.runID != s.info.runID:
		return l.judgeRestarted(s, e)
	case e.name != l.node.Name:
		return refusedFor(fmt.Errorf("this Redis (run_id %.8s…) is node %q already: two names for one server are one vote too many: correct the address of one of them, or the names, which must be the same on every host", e.runID, e.name))
	case !e.pending && e.digest != l.fleet.digest:
		return refusedFor(errOtherList(e.digest, l.fleet.digest))
	}
	switch err := l.compare(s, e); {
	case err == errDoubted:
		return ruling{standing: standing{state: NodeQuarantined, epoch: s.epoch, reason: errOutdone, until: s.at + settling}}
	case err != nil:
		if !e.pending {
			l.withdrawn(err, false)
		}
		return l.mark(s, false)
	}
	if e.pending {
		return l.judgePending(ctx, s, e)
	}
	return l.judgeAdmitted(s, e)
}

// compare finds out whether the epoch is the last one that anybody knows of, and takes in
// what stands at the node of the others.
func (l *lane) compare(s *sighting, e epoch) error {
	if l.fleet.options.NoQuarantine {
		return nil
	}
	l.fleet.lookAt(l.fleet.words.look(l.index, s.words, !e.pending, s.sent, s.at))
	news, err := l.rules.last(l.fleet.words, l.index, e.word, s.at)
	if err == errOutdone {
		l.memory.outdoneAt = s.at
	}
	if news {
		l.fleet.lookAll(l) // who looks writes it there
	}
	return err
}

func refusedFor(err error) ruling {
	return ruling{standing: standing{state: NodeRefused, reason: err}}
}

func errOtherList(theirs, ours string) error {
	what, why := "node list", "with two lists two quorums could hold one lock; use the same names everywhere"
	if listOf(theirs) == listOf(ours) {
		what, why = "key_prefix", "with two prefixes two hosts could hold one lock; use the same one everywhere"
	}
	return fmt.Errorf("it was admitted with another %s (%s, here %s): %s; or, to change it: %s", what, theirs, ours, why, ChangeForAll)
}

// ChangeForAll is how to change what all hosts must have in common: the node list, the prefix.
const ChangeForAll = "stop all daemons, wait max_ttl, HDEL " + nodeKey + " epoch on every node, start them with the new one"

// mark begins a quarantine.
func (l *lane) mark(s *sighting, kept bool) ruling {
	if !l.fleet.options.NoQuarantine {
		l.fleet.counts.quarantines.Add(1)
	}
	return ruling{write: &epoch{
		pending: true,
		runID:   s.info.runID,
		word:    newWord(s.clock.ms(), l.fleet.words.newest(l.index)),
		maxTTL:  l.fleet.longestTTL(),
		kept:    kept,
		name:    l.node.Name,
	}}
}

// judgeRestarted: the epoch was written to another process. Only what a durable
// node wrote to its own file is as good as if it had gone on.
func (l *lane) judgeRestarted(s *sighting, e epoch) ruling {
	m := &l.memory
	own := e.name == l.node.Name && (m.word == "" || e.word == m.word || e.word == m.marker.word)
	if l.node.Durable && s.info.file.hasEachVote() && s.at >= m.durableFrom && own && !e.pending && e.digest == l.fleet.digest {
		e.runID = s.info.runID
		return ruling{write: &e}
	}
	return l.mark(s, false)
}

// judgeAdmitted: the epoch is this very process's. What the epoch cannot show
// is looked for in what was seen under it before.
func (l *lane) judgeAdmitted(s *sighting, e epoch) ruling {
	l.fleet.noteMaxTTL(e.maxTTL)
	m := &l.memory
	why := m.suspicion(s, e, l.fleet.longestTTL())
	l.fleet.jumps.keep(l.index, &m.watch)
	jump, jumped := why.(clockJump)
	switch {
	case jumped && l.fleet.options.NoQuarantine:
		m.watch, why = clockWatch{}, nil
	case jumped:
		return l.judgeJump(s, jump, m.jumpSince)
	}
	if why != nil {
		kept := errors.Is(why, errUptime)
		l.withdrawn(why, kept)
		return l.mark(s, kept)
	}
	m.noteDurable(s.at, l.fleet.longestTTL())
	if s.at < m.localUntil {
		return l.onlyHere()
	}
	if longest := l.fleet.longestTTL(); e.maxTTL < longest {
		e.maxTTL = longest // first on the nodes, then used
		return ruling{write: &e}
	}
	l.fleet.forgetLoss()
	return ruling{standing: standing{state: NodeReady, epoch: s.epoch}}
}

// rewrite writes an epoch, and the others' words, unless somebody else wrote others since.
func (l *lane) rewrite(ctx context.Context, conn Conn, s *sighting, epoch string, records []byte, words string) error {
	ahead := proposalAhead
	if l.fleet.options.NoQuarantine {
		ahead = 0
	}
	l.commands = l.commands[:0]
	l.appendCommand("EVALSHA", nodeScript.SHA, "1", nodeKey, s.epoch, epoch, string(records), strconv.FormatInt(ahead.Microseconds(), 10), words, s.words)
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

// proposalAhead is how far a fencing token that is proposed may be ahead of a
// node's TIME (ballot.lua has the same): counters that are begun anew are put
// beyond it.
const proposalAhead = time.Second

// refuse: what the node refused to do is why it has no vote. Other errors are
// the connection's, and returned.
func (l *lane) refuse(err error) error {
	if !redis.IsServerError(err) {
		return err
	}
	l.stand(standing{state: NodeRefused, reason: err})
	return nil
}

// stand makes a standing known.
func (l *lane) stand(s standing) {
	l.session.epoch = ""
	if l.rules.votes(s.state) {
		l.session.epoch = s.epoch
	}
	l.mu.Lock()
	l.until = s.until
	if s.state != NodeQuarantined {
		l.loss = lossSpan{}
	}
	l.mu.Unlock()
	l.setState(s.state, s.reason)
}

func (l *lane) noteWarnings(s *sighting) {
	l.memory.noteFile(&s.info.file)
	warnings := l.memory.fileWarnings(&s.info.file, l.node.Durable)
	l.mu.Lock()
	l.warning = warnings
	l.mu.Unlock()
}
