package redlock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// appendLook appends the commands that show whether the node may vote. TIME comes first:
// nothing slow stands between it and the calls before it.
func (l *lane) appendLook() {
	l.session.look, l.session.rights, l.rights = false, false, l.session.rights && !l.node.Embedded
	l.lookTurn = l.fleet.admission.NextTurn()
	l.appendCommand("TIME")
	l.appendCommand("HGET", script.NodeKey, "epoch")
	l.appendCommand("HGET", script.NodeKey, "words")
	if l.node.Embedded {
		return
	}
	info := l.appendCommand("INFO")
	*info = append(*info, admission.InfoSections...)
	if l.node.Durable {
		config := l.appendCommand("CONFIG", "GET")
		*config = append(*config, admission.FileSettings...)
		for _, command := range l.fileCommands() {
			right := l.appendCommand("ACL", "DRYRUN", "default")
			*right = append(*right, command...)
		}
	}
	if l.rights {
		l.appendRights()
	}
}

// fileCommands returns commands like those that the node's append-only file contains, on
// a key that no lock has, but that has the rights for locks.
func (l *lane) fileCommands() [][]string {
	return admission.FileCommands(l.fleet.options.Prefix + probeSuffix)
}

// probeSuffix ends the keys of probes: no name can have it.
const probeSuffix = beside + "probe"

// readLook reads the answers to appendLook. An error: the node refused a command, or its
// answer is not one.
func (l *lane) readLook(replies []Reply) (*admission.Snapshot, error) {
	if l.rights {
		last := len(replies) - 1
		if err := l.noteRights(replies[last:]); err != nil {
			return nil, err
		}
		replies = replies[:last]
	}
	ignoreExpectedErrors(replies)
	for i := range min(len(replies), len(lookCommands)) {
		if err := replies[i].Err; err != nil {
			return nil, cmp.Or(sentinelError(replies), fmt.Errorf("%s, which tells whether it may vote: %w%s", lookCommands[i], err, helpWith(err)))
		}
	}
	if err := checkLook(replies); err != nil {
		return nil, l.noteOdd(err)
	}
	s := &admission.Snapshot{Info: admission.EmbeddedInfo(), Epoch: replies[1].Str, Incarnations: replies[2].Str, Sent: l.sent, At: l.heard, SentTurn: l.lookTurn, Turn: l.fleet.admission.NextTurn()}
	s.Clock = l.readTime(&replies[0])
	s.Clock.Turn = s.Turn
	l.fleet.admission.NoteClock(l.index, s.Clock)
	if len(replies) > 3 {
		s.Info = admission.ReadInfo(replies[3].Str)
	}
	l.session.probe = l.session.probe || s.Info.MayDeny
	if len(replies) > 4 {
		l.readFile(&s.Info.File, replies[4].Array, replies[5:])
	}
	return s, nil
}

// readFile reads the settings of the append-only file, and whether a restart would load
// all of it.
func (l *lane) readFile(file *admission.AppendOnlyFile, settings, rights []Reply) {
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

// sentinelError returns the error for a Sentinel, which does not know TIME; nil: it is
// none.
func sentinelError(replies []Reply) error {
	if len(replies) > 3 && replies[3].IsText() && admission.ReadInfo(replies[3].Str).Sentinel {
		return admission.ErrSentinel
	}
	return nil
}

// ignoreExpectedErrors replaces the errors of a node that refuses to show its epoch if its
// INFO says that it is refused in any case: a node of a cluster (CLUSTERDOWN, MOVED), or a
// replica without its master (MASTERDOWN). The refusal then names what to fix.
func ignoreExpectedErrors(replies []Reply) {
	if len(replies) <= 3 || !replies[3].IsText() {
		return
	}
	info := admission.ReadInfo(replies[3].Str)
	for i := 1; i <= 2; i++ {
		if redis.IsServerError(replies[i].Err) && info.Refusal() != nil {
			replies[i] = Reply{Nil: true}
		}
	}
}

var lookCommands = [...]string{"TIME", "HGET " + script.NodeKey + " epoch", "HGET " + script.NodeKey + " words", "INFO", "CONFIG GET " + admission.FileSettings[0]}

// look takes a snapshot of the node, in a round trip of its own.
func (l *lane) look(ctx context.Context, conn Conn) (*admission.Snapshot, error) {
	l.commands = l.commands[:0]
	l.appendLook()
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	return l.readLook(l.replies)
}
