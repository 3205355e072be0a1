package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// A node may answer, report its time and be allowed to vote, and still refuse what locks need,
// for every client: its memory or its disk is full, or its ACL lacks a command. The lane
// continues to send calls to it, because that may end at any time. The status shows it as
// [Refused] from the first such answer on. Each look at the node then sends a probe, until one is
// not refused. The status must also be right if no client requests a lock for hours. So each look
// asks what the ACL lacks (rights.lua). If INFO gives a reason, the look sends a probe even
// without such an answer.

// denials are the kinds of such errors, with the fix. (READONLY is not among them, because the
// look says more about a replica.)
var denials = map[string]string{
	"OOM":        "it has no memory left: CONFIG SET maxmemory to more (on a managed server: its parameter group or a larger size), or find out what fills it",
	"MISCONF":    "it cannot write to its disk: its own log says why",
	"NOREPLICAS": "it requires replicas, but must have none: CONFIG SET min-replicas-to-write 0 (on a managed server: in its parameter group)",
	"NOPERM":     "its ACL does not allow it: NODES.md has the rights that are needed (with another key_prefix, its keys are ~that* instead of ~redlock:*)",
	renamed:      "it lacks a command that locks need (rename-command in its redis.conf): NODES.md has those that are needed",
}

// renamed is this package's own word: Redis answers ERR and unknownCommand.
const (
	renamed        = "renamed"
	unknownCommand = "Unknown Redis command called from script"
)

// probeKey returns a key beside the key of the lock that was refused, because an ACL may allow
// other keys. No lock's name results in it.
func (l *Lane) probeKey() string {
	return cmp.Or(l.deniedAt, l.prefix) + probeSuffix
}

// denialOf returns the fix for an error that all clients will get; "": it is not such an error.
func denialOf(err error) string {
	kind, text, _ := strings.Cut(err.Error(), " ")
	switch {
	case strings.Contains(text, "The user executing the script can't"): // Redis 7.0 begins that error with ERR
		kind = "NOPERM"
	case strings.Contains(text, unknownCommand):
		kind = renamed
	}
	return denials[kind]
}

// IsDenied reports whether a node refused a command to this user, or does not know it.
func IsDenied(err error) bool {
	advice := denialOf(err)
	return advice != "" && (advice == denials["NOPERM"] || advice == denials[renamed])
}

func (l *Lane) denyFor(op string, err error) bool {
	advice := denialOf(err)
	if advice != "" {
		l.showDenial(fmt.Errorf("it answers, but refuses what locks need; %s (%s: %w)", advice, op, err))
	}
	return advice != ""
}

// showDenial sets the reason for which the node is shown as refused; nil: it no longer refuses.
func (l *Lane) showDenial(denied error) {
	l.mu.Lock()
	changed := (denied == nil) != (l.denied == nil)
	l.denied = denied
	status := l.statusLocked()
	l.mu.Unlock()
	if changed && status.State == Ready && l.observe != nil {
		l.observe(l.withDenial(status))
	}
}

func (l *Lane) isDenied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.denied != nil
}

// withDenial returns a status as other packages see it.
func (l *Lane) withDenial(status Status) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denied != nil && status.State == Ready {
		status.State, status.Reason = Refused, l.denied
	}
	return status
}

// probe finds out whether the node still refuses. It acquires an exclusive and a shared lock, and
// extends and releases each of them. (If it probed less, a node that allows only that would seem
// ready until the next lock.)
func (l *Lane) probe(ctx context.Context, conn redis.Conn) error {
	l.session.needsProbe = false
	calls := []Call{{Op: "probe", Ops: l.probeOps(), NotAfter: l.clock() + l.timing.answer}}
	l.trip.commands = l.trip.commands[:0]
	l.appendCalls(calls)
	l.appendRights()
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	reply := &l.trip.replies[0]
	if err := checkSpan(calls, reply); err != nil {
		return l.noteMalformed(err)
	}
	lacks, err := l.readRights(l.trip.replies[1:])
	if err != nil {
		return err
	}
	if firstError(reply) == nil {
		l.noteWrite()
	}
	if err := cmp.Or(firstError(reply), lacks); err == nil {
		l.showDenial(nil)
	} else if !l.isDenied() {
		l.denyFor("probe", err)
	}
	return nil
}

// appendRights asks what the ACL lacks. An embedded node has no ACL.
func (l *Lane) appendRights() {
	if !l.node.Embedded {
		l.appendCommand("EVALSHA", script.Rights.SHA, "0", l.probeKey(), script.NodeKey)
	}
}

// readRights reads the answer to appendRights. lacks is the error that a script would get because
// of the missing rights; nil: none is missing, or the node does not report them. err means that
// the answer is malformed.
func (l *Lane) readRights(replies []redis.Reply) (lacks, err error) {
	if len(replies) == 0 {
		return nil, nil
	}
	reply := &replies[0]
	l.session.strictKeys = reply.Err != nil && strings.Contains(reply.Err.Error(), undeclared)
	switch {
	case reply.Err != nil && denialOf(reply.Err) == "":
		l.session.needsScripts = l.session.needsScripts || redis.IsKind(reply.Err, "NOSCRIPT")
		return nil, nil
	case reply.Err != nil:
		return reply.Err, nil
	case !reply.IsList() || slices.ContainsFunc(reply.Array, func(name redis.Reply) bool { return !name.IsText() }):
		return nil, l.noteMalformed(redis.UnexpectedAnswer("rights", "names of commands", reply))
	}
	isStrict := func(name redis.Reply) bool { return strings.HasPrefix(name.Str, "!") }
	l.session.strictKeys = slices.ContainsFunc(reply.Array, isStrict)
	return l.lacking(l.notePublish(slices.DeleteFunc(reply.Array, isStrict))), nil
}

// undeclared is in the error of a server that lets scripts use only the keys that they declare.
const undeclared = "undeclared key"

// notePublish records whether the node can call waiters, and returns the other commands that
// rights.lua names.
func (l *Lane) notePublish(commands []redis.Reply) []redis.Reply {
	isPublish := func(name redis.Reply) bool { return strings.HasPrefix(name.Str, "+") }
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publishes = !slices.ContainsFunc(commands, isPublish)
	return slices.DeleteFunc(commands, isPublish)
}

// lacking returns the error for the commands that rights.lua names.
func (l *Lane) lacking(commands []redis.Reply) error {
	var denied, rights []string
	for i := range commands {
		name, unknown := strings.CutPrefix(commands[i].Str, "?")
		if unknown {
			return redis.ServerError("ERR " + unknownCommand + ": " + name)
		}
		name = strings.ToLower(name)
		denied, rights = append(denied, "'"+name+"'"), append(rights, "+"+name)
	}
	if denied == nil {
		return nil
	}
	return redis.ServerError("NOPERM this user has no permissions to run the command " + strings.Join(denied, ", ") + "; fix: " + l.rightsFix(rights))
}

// noteRights records what the ACL lacks. The node is shown as refused before it refuses a lock
// for that reason, until a probe succeeds.
func (l *Lane) noteRights(replies []redis.Reply) error {
	lacks, err := l.readRights(replies)
	if lacks != nil && !l.isDenied() {
		l.denyFor("rights", lacks)
	}
	return err
}

func firstError(reply *redis.Reply) error {
	if at := slices.IndexFunc(reply.Array, func(r redis.Reply) bool { return r.Err != nil }); reply.Err == nil && at >= 0 {
		return reply.Array[at].Err
	}
	return reply.Err
}

// probeOps returns operations that leave nothing on the node: one script executes all of them,
// and what it cannot release expires in a millisecond. The token belongs to no client. They begin
// with a SET, because a node without memory lets a script that has written continue to write.
func (l *Lane) probeOps() []script.Operation {
	o := script.Operation{Key: l.probeKey(), Token: "probe", Kind: script.KindShared, TTL: time.Millisecond}
	o.Counter = script.CounterOf(o.Key)
	var ops []script.Operation
	for _, letter := range [...]script.Opcode{script.Acquire, script.Extend, script.Force, script.Join, script.Extend, script.Force} {
		o.Op = letter
		ops = append(ops, o)
	}
	return ops
}
