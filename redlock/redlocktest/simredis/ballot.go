package simredis

import (
	"math"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// ballotCall is one call of ballot.lua in progress.
type ballotCall struct {
	call
	node          string // the key of the node's hash
	noVote        error  // why the node does not vote; nil: it votes
	late          bool
	args          []string       // arguments that were not read yet
	records       []record       // records that were not read yet
	otherNames    []operand      // other names of the next acquire
	refused       *redlock.Reply // what refused the last acquire; nil: it was granted
	wanted        string         // the kind that it asked for; "": exclusive
	ownWaiter     string         // the name of the caller if it waits
	reservedUntil int64          // until when reservations may exist, in milliseconds
	free          bool           // all names of the acquire that were reserved so far can be acquired
	reserving     bool           // reservations may exist now
	counters      map[string]int64
	writes        []string // fields and values
}

// operand is an operation with its arguments.
type operand struct {
	letter     byte
	key, token string
	old, kind  string // old: of h and u; kind: of s and q, and the pattern of y
	ttl        string // of a, s, h, e, g, u, v, j, p, q, z, x, i, k and m; the count of y
	record     record // of a, n, s, h, v, j, f, p and q
}

const (
	proposalAhead = 1_000_000          // microseconds
	maxAhead      = 31_449_600_000_000 // microseconds: 52 weeks
	maxCounter    = 1<<53 - 1<<40      // beyond this, a node fails
)

const (
	errEpoch    = redlock.ServerError("EPOCH another incarnation than the one that was admitted")
	errCounters = redlock.ServerError("COUNTERS its fencing counters are gone")
)

// ballot runs ballot.lua: it executes the operations in order. Each has its own reply.
func ballot(c call, keys, argv []string) redlock.Reply {
	if len(keys) < 1 || len(argv) < 4 {
		return Refuse(simError("ballot: the node's key and four arguments at least: got %d keys and %d arguments", len(keys), len(argv)))
	}
	letters := argv[2]
	b := ballotCall{call: c, node: keys[0], args: argv[4:], counters: map[string]int64{}}
	if err := b.begin(argv[0], argv[1], argv[3]); err != nil {
		return Refuse(err)
	}
	if len(letters) < len(keys)-1 || malformed(letters) {
		return Refuse(simError("ballot: %d keys, and %q is not as many operations with an acquire after each n", len(keys)-1, letters))
	}
	replies := make([]redlock.Reply, len(keys)-1)
	for i, key := range keys[1:] {
		o := b.read(letters[i], key)
		if b.ownWaiter = ""; isOneOf(letters[i], "ash") && i+1 < len(letters) && letters[i+1] == 'i' && len(b.args) > 0 {
			b.ownWaiter = b.args[0]
		}
		replies[i] = b.operate(o)
		for j := i - 1; j >= 0 && isOneOf(letters[i], "as") && letters[j] == 'n'; j-- {
			replies[j] = replies[i]
		}
	}
	b.writeCounters(letters, replies)
	return redlock.Reply{Array: replies}
}

// malformed reports whether an n is not followed by an acquire.
func malformed(letters string) bool {
	for i := range len(letters) {
		if letters[i] == 'n' && (i+1 == len(letters) || !isOneOf(letters[i+1], "nas")) {
			return true
		}
	}
	return false
}

func isOneOf(letter byte, letters string) bool { return strings.IndexByte(letters, letter) >= 0 }

// begin checks the epoch and reads the counters.
func (b *ballotCall) begin(epoch, notAfter, records string) error {
	var err error
	if b.records, err = parseRecords(records); err != nil {
		return err
	}
	limit, err := strconv.ParseInt(notAfter, 10, 64)
	if err != nil {
		return simError("ballot: %q is no not-after", notAfter)
	}
	b.late = b.now > limit && !b.Variant(IgnoreNotAfter)
	b.noVote = b.admits(epoch)
	return nil
}

// admits returns why this incarnation does not vote, or nil.
func (b *ballotCall) admits(epoch string) error {
	known, ok, err := b.hget(b.node, "epoch")
	switch {
	case epoch == "":
		return errEpoch
	case err != nil:
		return err
	case (!ok || known != epoch) && !b.Variant(IgnoreEpoch):
		return errEpoch
	}
	for _, r := range b.records {
		text, _, _ := b.hget(b.node, r.field)
		count, err := strconv.ParseInt(text, 10, 64)
		if (err != nil || count < 0 || count > maxCounter) && !b.Variant(IgnoreEpoch) {
			return errCounters
		}
		b.counters[r.field] = count
	}
	if len(b.records) > 0 {
		text, _, _ := b.hget(b.node, "keeps")
		b.reservedUntil, _ = strconv.ParseInt(text, 10, 64)
		b.reserving = b.reservedUntil*1000 > b.now
	}
	return nil
}

// read reads the arguments of the next operation.
func (b *ballotCall) read(letter byte, key string) operand {
	o := operand{letter: letter, key: key}
	if o.letter == 'h' || o.letter == 'u' {
		o.old = b.next()
	}
	if !isOneOf(o.letter, "wlco") {
		o.token = b.next()
	}
	if o.letter == 's' || o.letter == 'y' {
		o.kind = b.next()
	}
	if isOneOf(o.letter, "asheguvjpqzxikmy") {
		o.ttl = b.next()
	}
	if o.letter == 'q' {
		o.kind = b.next()
	}
	if isOneOf(o.letter, "anshvjfpq") && len(b.records) > 0 {
		o.record, b.records = b.records[0], b.records[1:]
	}
	return o
}

// operate executes an operation.
func (b *ballotCall) operate(o operand) redlock.Reply {
	if b.noVote != nil && o.letter != 'r' && o.letter != 'd' {
		return Refuse(b.noVote)
	}
	switch o.letter {
	case 'n':
		b.otherNames = append(b.otherNames, o)
		return redlock.Reply{} // replaced with the reply of the acquire
	case 'a', 's', 'h':
		b.wanted, b.free = o.kind, true
		return b.grant(o)
	case 'e':
		return b.extend(o.key, o.token, o.ttl)
	case 'g':
		return b.downgrade(o.key, o.token, o.ttl)
	case 'u':
		return b.exchange(o)
	case 'v':
		return b.confirm(o)
	case 'j':
		return b.retain(o)
	case 'r':
		return b.release(o.key, o.token)
	case 'w', 'l':
		return b.showHolders(o.key, map[byte]int{'w': Few, 'l': math.MaxInt}[o.letter])
	case 'f':
		return b.fence(o)
	case 'p', 'q':
		return b.repair(o)
	case 'z':
		return b.noteForced(o.key, o.token, o.ttl)
	case 'x':
		return b.force(o.key, o.token, o.ttl)
	case 'i':
		return b.wait(o)
	case 'k':
		return b.reserve(o)
	case 'm':
		return b.intendWrite(o.key, o.token, o.ttl)
	case 'd':
		return b.endWait(o.key, o.token)
	case 'c':
		return hgetallCommand(b.with(b.node))
	case 'y':
		return b.scan(o.token, o.kind, o.ttl)
	case 'o':
		return b.describe(o.key)
	}
	return Refuse(simError("ballot: %q is no operation", o.letter))
}

// next takes one argument.
func (b *ballotCall) next() string {
	if len(b.args) == 0 {
		return ""
	}
	arg := b.args[0]
	b.args = b.args[1:]
	return arg
}

// refusal returns why no lock can be granted for this record, whatever client holds it, or nil.
func (b *ballotCall) refusal(r record) *redlock.Reply {
	var reply redlock.Reply
	switch {
	case b.late:
		reply = Refuse(errLate)
	case b.counters[r.field] >= maxCounter:
		reply = Failed("FULL its fencing counter %s is at its end: somebody else wrote to it; HDEL redlockd:node epoch on this node, and after max_ttl it has the counters of the others", r.field)
	default:
		return nil
	}
	return &reply
}

const errLate = redlock.ServerError("LATE the attempt was over when it reached this node")

// count increments the counter, or takes the larger proposal, and returns the fencing token.
func (b *ballotCall) count(r record) int64 {
	count := b.counters[r.field] + 1
	if b.Variant(TokensFarAhead) {
		return maxCounter - 8
	}
	if r.value > count && r.value <= b.now+proposalAhead {
		count = r.value
	}
	b.note(r.field, count)
	return count
}

// raise sets a counter to at least count.
func (b *ballotCall) raise(field string, count int64) {
	if count > b.counters[field] {
		b.note(field, count)
	}
}

// tooFarAhead returns why a counter cannot be raised to count, or nil.
func (b *ballotCall) tooFarAhead(field string, count int64) *redlock.Reply {
	if count <= b.counters[field] || count <= b.now+maxAhead || b.Variant(TokensFarAhead) {
		return nil
	}
	refused := Failed("FAR a fencing token is more than a year ahead of this node's clock: set that clock, or find the node that gives such tokens")
	return &refused
}

func (b *ballotCall) note(field string, count int64) {
	b.counters[field] = count
	b.writes = append(b.writes, field, strconv.FormatInt(count, 10))
}

// writeCounters writes the changed counters. On failure, no operation counts as a vote.
func (b *ballotCall) writeCounters(letters string, replies []redlock.Reply) {
	if len(b.writes) == 0 {
		return
	}
	err := b.hset(b.node, b.writes...)
	for i := range replies {
		voted := replies[i].Int != 0 || len(replies[i].Array) == 1
		if err != nil && isOneOf(letters[i], "anshvjfpq") && voted {
			replies[i] = Refuse(err)
		}
	}
}
