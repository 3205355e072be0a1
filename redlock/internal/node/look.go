package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// appendLook appends the commands that show whether the node may vote. TIME comes first, so that
// nothing slow is between it and the calls before it. A short look asks for less of INFO, and costs a
// node a third. It finds out whatever may cost a vote: a restart breaks the connection; data that is
// gone or comes from another Redis has another epoch or master_replid; evictions are counted.
func (l *Lane) appendLook() {
	l.session.isOutdated = false
	l.session.needsLook, l.session.needsRights, l.lookHasRights = false, false, l.session.needsRights && !l.node.Embedded
	l.lookIsShort, l.session.isShort = l.session.isShort, false
	l.lookTurn = l.admission.NextTurn()
	l.lookShowsHost = l.waiters.showsHost()
	defer l.appendReport()
	defer l.appendAlive()
	l.appendCommand("TIME")
	l.appendCommand("HGET", script.NodeKey, "epoch")
	l.appendCommand("HGET", script.NodeKey, "words")
	if l.node.Embedded {
		return
	}
	info := l.appendCommand("INFO")
	if l.lookIsShort {
		*info = append(*info, admission.ShortSections...)
		return
	}
	*info = append(*info, admission.InfoSections...)
	if l.node.Durable {
		config := l.appendCommand("CONFIG", "GET")
		*config = append(*config, admission.FileSettings...)
		for _, command := range l.fileCommands() {
			right := l.appendCommand("ACL", "DRYRUN", "default")
			*right = append(*right, command...)
		}
	}
	if l.lookHasRights {
		l.appendRights()
	}
}

// appendAlive shows that this process lives while its requests wait: see queue.lua. The reply is the
// old value.
func (l *Lane) appendAlive() {
	if l.lookShowsHost {
		l.appendCommand("SET", hostChannel+l.waiters.Host, HostAlive, "PX", hostTTL, "GET")
	}
}

const (
	// HostAlive is the value of the key that shows that a process lives: see enter in queue.lua.
	HostAlive = "1"
	// hostTTL is for how many milliseconds a host counts as alive: HOST_TTL in queue.lua.
	hostTTL = "3500"
)

// fileCommands returns commands like those in the node's append-only file. Their key belongs to
// no lock, but has the rights of locks' keys.
func (l *Lane) fileCommands() [][]string {
	return admission.FileCommands(l.prefix + probeSuffix)
}

// probeSuffix is the end of the keys of probes. No name can have it.
const probeSuffix = script.Separator + "probe"

// readLook reads the answers to appendLook. An error means that the node refused a command, or
// gave an invalid answer.
func (l *Lane) readLook(replies []redis.Reply) (*admission.Snapshot, error) {
	if l.lookReports {
		replies = replies[:len(replies)-2] // an error only hides this host from the operator
	}
	if l.lookShowsHost {
		last := len(replies) - 1
		if replies[last].Nil {
			// The node took this process for dead: it was stopped or too slow. The node may have removed
			// its waiters, so all ask again. (An error costs them their turns there, and no more.)
			l.waiters.missed(l.hooks.Jitter)
		}
		replies = replies[:last]
	}
	if l.lookHasRights {
		last := len(replies) - 1
		if err := l.noteRights(replies[last:]); err != nil {
			return nil, err
		}
		replies = replies[:last]
	}
	ignoreExpectedErrors(replies)
	for i := range min(len(replies), len(lookCommands)) {
		if err := replies[i].Err; err != nil {
			return nil, cmp.Or(sentinelError(replies), fmt.Errorf("%s, which shows whether it may vote: %w%s", lookCommands[i], err, helpWith(err)))
		}
	}
	if err := checkLook(replies); err != nil {
		return nil, l.noteMalformed(err)
	}
	s := &admission.Snapshot{Info: admission.EmbeddedInfo(), Epoch: replies[1].Str, Incarnations: replies[2].Str, Sent: l.trip.sent, At: l.trip.received, SentTurn: l.lookTurn, Turn: l.admission.NextTurn()}
	s.Clock = l.readTime(&replies[0])
	s.Clock.Turn = s.Turn
	l.admission.NoteClock(l.index, s.Clock)
	if len(replies) > 3 {
		s.Info = l.readInfo(replies[3].Str, &replies[0])
	}
	l.session.needsProbe = l.session.needsProbe || s.Info.MayDeny
	if len(replies) > 4 {
		l.readFile(&s.Info.File, replies[4].Array, replies[5:])
	}
	return s, nil
}

// readInfo reads the answer to INFO, whole or short.
func (l *Lane) readInfo(text string, clock *redis.Reply) admission.NodeInfo {
	seconds, _ := strconv.ParseInt(clock.Array[0].Str, 10, 64) // checkLook has checked it
	if l.lookIsShort {
		return l.session.info.Update(text, seconds-l.session.info.seconds)
	}
	l.session.info = &fullInfo{admission.ReadInfo(text), seconds, l.trip.received}
	return l.session.info.NodeInfo
}

// readFile reads the settings of the append-only file, and whether a restart would load all of
// it.
func (l *Lane) readFile(file *admission.AppendOnlyFile, settings, rights []redis.Reply) {
	for i := 0; i+1 < len(settings); i += 2 {
		file.ReadSetting(settings[i].Str, settings[i+1].Str)
	}
	answers := make([]admission.DryRun, len(rights))
	for i := range rights {
		answers[i] = admission.DryRun{Err: rights[i].Err, Text: rights[i].Str}
	}
	file.ReadRights(l.fileCommands(), answers, probeSuffix)
}

func helpWith(err error) string {
	if redis.IsKind(err, "WRONGTYPE") {
		return " (somebody else wrote to redlockd:node: DEL it there, and the node is in quarantine for max_ttl)"
	}
	return ""
}

// sentinelError returns the error for a Sentinel, which does not know TIME; nil: the node is no
// Sentinel.
func sentinelError(replies []redis.Reply) error {
	if len(replies) > 3 && replies[3].IsText() && admission.ReadInfo(replies[3].Str).Sentinel {
		return admission.ErrSentinel
	}
	return nil
}

// ignoreExpectedErrors replaces the errors of a node that refuses to show its epoch if its INFO
// gives a reason to refuse it in any case: a node of a cluster (CLUSTERDOWN, MOVED), or a replica
// without its master (MASTERDOWN). The refusal then names what to fix.
func ignoreExpectedErrors(replies []redis.Reply) {
	if len(replies) <= 3 || !replies[3].IsText() {
		return
	}
	info := admission.ReadInfo(replies[3].Str)
	for i := 1; i <= 2; i++ {
		if redis.IsServerError(replies[i].Err) && info.Refusal() != nil {
			replies[i] = redis.Reply{Nil: true}
		}
	}
}

var lookCommands = [...]string{"TIME", "HGET " + script.NodeKey + " epoch", "HGET " + script.NodeKey + " words", "INFO", "CONFIG GET " + admission.FileSettings[0]}

// look takes a snapshot of the node, in its own round trip.
func (l *Lane) look(ctx context.Context, conn redis.Conn) (*admission.Snapshot, error) {
	l.trip.commands = l.trip.commands[:0]
	l.appendLook()
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	l.noteRead()
	return l.readLook(l.trip.replies)
}

// maxRewrites bounds how often an epoch is written in a row. Then other hosts that write it as
// well get their turn.
const maxRewrites = 5

// verify finds out whether the node may vote, and writes its epoch if necessary: the marker of a
// quarantine, the end of one, or a larger max_ttl.
func (l *Lane) verify(ctx context.Context, conn redis.Conn, s *admission.Snapshot) error {
	warnings := l.member.NoteFile(&s.Info.File)
	l.mu.Lock()
	l.warnings = warnings
	l.mu.Unlock()
	var v admission.Verdict
	for range maxRewrites {
		if v = l.judge(ctx, s); v.Write == nil {
			l.applyVote(v.VoteStatus)
			if written, err := l.writeReports(ctx, conn, s, v.State); written || err != nil {
				return err
			}
		} else if err := l.writeVerdict(ctx, conn, s, &v); err != nil {
			return l.refuse(l.explainRefusal(ctx, conn, err))
		}
		var err error
		if s, err = l.look(ctx, conn); err != nil {
			return l.refuse(l.explainRefusal(ctx, conn, err))
		}
	}
	if v.Write != nil {
		l.applyVote(admission.VoteStatus{State: admission.Quarantined, Reason: errEpochContested})
	}
	return nil
}

var errEpochContested = errors.New("other hosts keep writing its epoch; redlockd reads it again in a second")

// judge returns what follows from a snapshot. It copies the other nodes' fencing counters if
// necessary.
func (l *Lane) judge(ctx context.Context, s *admission.Snapshot) admission.Verdict {
	s.Info.StrictKeys = l.session.strictKeys
	v := l.member.Judge(s)
	l.fleet.Judged(l.node.Name, &v)
	if !v.NeedsCounters && !v.Completes {
		return v
	}
	sources := l.fleet.CopyCounters(ctx, l.index) // not earlier: the counters grow during the quarantine
	if v.Completes {
		return l.member.Complete(s, sources, v)
	}
	v = l.member.EndQuarantine(s, sources)
	l.fleet.Judged(l.node.Name, &v)
	return v
}

// writeReports writes to the node what it does not report yet about the other nodes'
// incarnations. written is false if another host has written there since the snapshot. If it
// fails, the next look retries.
func (l *Lane) writeReports(ctx context.Context, conn redis.Conn, s *admission.Snapshot, state admission.State) (written bool, err error) {
	reports := l.member.Reports()
	if state == admission.Refused || reports == "" {
		return true, nil
	}
	err = l.rewrite(ctx, conn, s, s.Epoch, nil, reports)
	switch {
	case redis.IsServerError(err):
		return true, nil
	case err != nil || l.trip.replies[0].Int != 1:
		return false, err
	}
	l.fleet.LookAt(l.member.NoteReports(reports, l.trip.received))
	return true, nil
}

// writeVerdict writes an epoch, and what is known about the other nodes' incarnations. It first
// records the node's own reports, which would otherwise be overwritten: reports beside an invalid
// epoch were not read yet.
func (l *Lane) writeVerdict(ctx context.Context, conn redis.Conn, s *admission.Snapshot, v *admission.Verdict) error {
	reports := ""
	if !l.noQuarantine {
		l.fleet.LookAt(l.member.NoteReports(s.Incarnations, s.At))
		reports = l.member.Reports()
	}
	return l.rewrite(ctx, conn, s, v.Write.String(), script.Records(v.Counters), reports)
}

// rewrite writes an epoch, fencing counters (nil: they stay) and reports, unless another host has
// written others since the snapshot, or the snapshot is too old: this process was stopped, or the network delayed
// the call.
func (l *Lane) rewrite(ctx context.Context, conn redis.Conn, s *admission.Snapshot, epoch string, records []byte, reports string) error {
	ahead := admission.ProposalLead // counters that restart begin after that
	if l.noQuarantine {
		ahead = 0
	}
	notAfter := s.Clock.Low + s.At + l.timing.silence // Low is never above the offset of the node's clock
	l.trip.commands = l.trip.commands[:0]
	l.appendCommand("EVALSHA", script.Epoch.SHA, "1", script.NodeKey, s.Epoch, epoch, string(records), strconv.FormatInt(ahead.Microseconds(), 10), reports, s.Incarnations,
		strconv.FormatInt(notAfter.Microseconds(), 10))
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	err := l.trip.replies[0].Err
	switch {
	case err == nil:
		if l.trip.replies[0].Int == 1 {
			l.noteWrite()
		}
		return nil
	case redis.IsKind(err, "NOSCRIPT"): // the script is loaded, and the next round tries again
		return l.load(ctx, conn)
	}
	return fmt.Errorf("its epoch cannot be written: %w%s", err, helpWith(err))
}

// refuse records a server's error as the reason why the node has no vote. It returns other
// errors, which are about the connection.
func (l *Lane) refuse(err error) error {
	if !redis.IsServerError(err) && !errors.As(err, new(*RightsError)) {
		return err
	}
	l.applyVote(admission.VoteStatus{State: admission.Refused, Reason: err})
	return nil
}

// applyVote sets and reports a vote status.
func (l *Lane) applyVote(v admission.VoteStatus) {
	state := State(v.State)
	l.session.epoch = ""
	if state == Ready {
		l.session.epoch = v.Epoch
	}
	l.mu.Lock()
	l.quarantineEnd, l.needsNodes = v.Until, v.NeedsNodes
	l.mu.Unlock()
	if l.setState(state, v.Reason, func() []int { return l.member.Applied(v.State, l.clock()) }) && state == Ready {
		l.waiters.missed(l.hooks.Jitter)
	}
}

// checkFences replaces answers with a fencing token that is not believed by errors.
func (l *Lane) checkFences(ops []script.Operation, replies []redis.Reply) {
	if letter := ops[0].Op; !letter.Takes() && letter != script.ReadCounters {
		return
	}
	bound := l.admission.FenceBound(l.trip.received)
	for i := range replies {
		reply := &replies[i]
		switch {
		case reply.Err != nil:
		case ops[i].Op == script.ReadCounters:
			reply.Err = l.checkCounters(reply.Array, bound)
		case ops[i].Op.Takes():
			if fence := fenceReply(reply); fence.IsNumber() {
				reply.Err = l.admission.CheckFence(string(ops[i].Counter[:]), script.FenceOf(fence), bound)
			}
		}
	}
}

// fenceReply returns the fencing token, also of a hand-over that did not find the old token.
func fenceReply(reply *redis.Reply) *redis.Reply {
	if len(reply.Array) == 1 {
		return &reply.Array[0]
	}
	return reply
}

// checkCounters returns an error if one of a node's counters is not believed. Then none of them
// is.
func (l *Lane) checkCounters(fields []redis.Reply, bound uint64) error {
	for i := 0; i+1 < len(fields); i += 2 {
		value, ok := script.ParseFence(fields[i+1].Str)
		if _, known := script.CounterIndex(fields[i].Str); !known || !ok {
			continue
		}
		if err := l.admission.CheckFence(fields[i].Str, value, bound); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotAdmitted means that the node still may not vote.
var ErrNotAdmitted = errors.New("not admitted")

// ErrNotQuarantined means that the node is not quarantined, so it cannot be admitted.
var ErrNotQuarantined = errors.New("not in quarantine")

// AdmitNow makes the lane end the node's quarantine, and waits until it has tried.
func (l *Lane) AdmitNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*l.timing.silence)
	defer cancel()
	if s := l.currentStatus(); s.State != Quarantined {
		return fmt.Errorf("node %s is %s, %w", s.Name, s.State, ErrNotQuarantined)
	}
	done := make(chan struct{}, 1)
	select {
	case l.admitRequests <- done:
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
	if s := l.currentStatus(); s.State != Ready {
		return fmt.Errorf("node %s: %w: it is %s: %v", s.Name, ErrNotAdmitted, s.State, s.Reason)
	}
	return nil
}

// admitEarly looks at the node as if its quarantine had passed, as l.admitting requests.
func (l *Lane) admitEarly(conn redis.Conn) error {
	l.member.EndNow(true)
	defer func() {
		l.member.EndNow(false)
		l.admitting <- struct{}{}
		l.admitting = nil
	}()
	ctx := &l.trip.deadline
	ctx.start(l.timing.silence)
	return l.lookAgain(ctx, conn)
}

// checkLook checks the answers to appendLook.
func checkLook(replies []redis.Reply) error {
	if !isTime(&replies[0]) {
		return redis.UnexpectedAnswer("TIME", "seconds and microseconds", &replies[0])
	}
	for i := 1; i <= 2; i++ {
		if field := &replies[i]; !field.Nil && !field.IsText() {
			return redis.UnexpectedAnswer(lookCommands[i], "a string", field)
		}
	}
	if len(replies) > 3 && !replies[3].IsText() {
		return redis.UnexpectedAnswer("INFO", "a string", &replies[3])
	}
	if len(replies) > 4 && !script.IsFields(&replies[4]) {
		return redis.UnexpectedAnswer(lookCommands[4], "fields and values", &replies[4])
	}
	return nil
}

func isTime(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array) != 2 || !script.IsFields(reply) {
		return false
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	return errors.Join(err1, err2) == nil && seconds >= 0 && seconds < admission.MaxNodeSeconds && micros >= 0 && micros < 1e6
}
