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

// A node may answer, tell its time and have a vote, and yet refuse all that a lock
// needs, to everybody: its memory is full, or its disk; its ACL lacks a command. It is
// asked on, as that may end at any time, but whoever counts on it is told: it is shown
// as [Refused] from the first such answer on, until a probe, which goes out with
// each look at the node from then on, was not refused. Nobody may ask for a lock for hours,
// and status is asked whether he would get it: so each look asks what the ACL lacks
// (rights.lua), and where INFO gives reason to, a probe goes out without such an answer.

// denials are the kinds of such errors, with what to do. (READONLY is none: the look says
// more of a replica.)
var denials = map[string]string{
	"OOM":        "it has no memory left: CONFIG SET maxmemory to more, or find out what fills it",
	"MISCONF":    "it cannot write to its disk: its own log says why",
	"NOREPLICAS": "it wants replicas, and must have none: CONFIG SET min-replicas-to-write 0",
	"NOPERM":     "its ACL does not let us: OPERATING.md has the rights that are needed (with another key_prefix, its keys are ~that* instead of ~redlock:*)",
	renamed:      "it has no such command as one that locks need (rename-command in its redis.conf): OPERATING.md has those that are needed",
}

// renamed is no word of Redis', which says ERR and this.
const (
	renamed        = "renamed"
	unknownCommand = "Unknown Redis command called from script"
)

// probeKey is beside the key of a lock that was refused, as an ACL may let us use others;
// and no lock's: no name can have it.
func (l *Lane) probeKey() string {
	return cmp.Or(l.deniedAt, l.prefix) + probeSuffix
}

// denialOf is what to do about an error that everybody will get; "": this one is none.
func denialOf(err error) string {
	kind, text, _ := strings.Cut(err.Error(), " ")
	switch {
	case strings.Contains(text, "The user executing the script can't"): // Redis 7.0 says ERR then
		kind = "NOPERM"
	case strings.Contains(text, unknownCommand):
		kind = renamed
	}
	return denials[kind]
}

// deny notes that the node refused a call for a reason that concerns all of them.
func (l *Lane) deny(c *Call, err error) {
	if l.denyFor(c.Op, err) {
		l.deniedAt = c.Ops[0].Key
	}
}

func (l *Lane) denyFor(op string, err error) bool {
	advice := denialOf(err)
	if advice != "" {
		l.showDenial(fmt.Errorf("it answers, but refuses what locks need; %s (%s: %w)", advice, op, err))
	}
	return advice != ""
}

// showDenial says what is shown of the node from now on; nil: it refuses no more.
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

// withDenial is a status as others are to see it.
func (l *Lane) withDenial(status Status) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denied != nil && status.State == Ready {
		status.State, status.Reason = Refused, l.denied
	}
	return status
}

// probe finds out whether the node still refuses: it has a lock alone, shares it, and
// extends it and gives it back each time. (What asked for less would be allowed where a
// lock is not, and the node seem ready until the next one.)
func (l *Lane) probe(ctx context.Context, conn redis.Conn) error {
	l.session.probe = false
	calls := []Call{{Op: "probe", Ops: l.probeOps(), NotAfter: l.clock() + l.timing.answer}}
	l.commands = l.commands[:0]
	l.appendCalls(calls)
	l.appendRights()
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	reply := &l.replies[0]
	if err := checkSpan(calls, reply); err != nil {
		return l.noteMalformed(err)
	}
	lacks, err := l.readRights(l.replies[1:])
	if err != nil {
		return err
	}
	if err := cmp.Or(firstError(reply), lacks); err == nil {
		l.showDenial(nil)
	} else if !l.isDenied() {
		l.denyFor("probe", err)
	}
	return nil
}

// appendRights asks for what the ACL lacks. An embedded node has none.
func (l *Lane) appendRights() {
	if !l.node.Embedded {
		l.appendCommand("EVALSHA", script.Rights.SHA, "0", l.probeKey(), script.NodeKey)
	}
}

// readRights reads the answer to appendRights: lacks is an error like that of a script which
// needs what is lacking; nil: nothing is, or the node does not tell. err: it was no answer.
func (l *Lane) readRights(replies []redis.Reply) (lacks, err error) {
	if len(replies) == 0 {
		return nil, nil
	}
	reply := &replies[0]
	switch {
	case reply.Err != nil && denialOf(reply.Err) == "":
		l.session.scripts = l.session.scripts || redis.IsKind(reply.Err, "NOSCRIPT")
		return nil, nil
	case reply.Err != nil:
		return reply.Err, nil
	case !reply.IsList() || slices.ContainsFunc(reply.Array, func(name redis.Reply) bool { return !name.IsText() }):
		return nil, l.noteMalformed(redis.UnexpectedAnswer("rights", "names of commands", reply))
	}
	return lacking(reply.Array), nil
}

// lacking is the error that stands for commands which rights.lua names.
func lacking(commands []redis.Reply) error {
	var denied []string
	for i := range commands {
		name, unknown := strings.CutPrefix(commands[i].Str, "?")
		if unknown {
			return redis.ServerError("ERR " + unknownCommand + ": " + name)
		}
		denied = append(denied, "'"+strings.ToLower(name)+"'")
	}
	if denied == nil {
		return nil
	}
	return redis.ServerError("NOPERM this user has no permissions to run the command " + strings.Join(denied, ", "))
}

// noteRights takes in what the ACL lacks: it is shown before a lock is refused for it, and
// until a probe was not.
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

// probeOps leave nothing behind: one script does them all, and what it could not give
// back is over in a millisecond. The token is nobody's. They begin with a SET: once a
// script has written, a node without memory lets it write more.
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
