package redlocktest

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// ballotCall is one call of ballot.lua under way.
type ballotCall struct {
	call
	node     string // the key of the node's hash
	why      error  // why only releases are done; nil: it votes
	late     bool
	args     []string // what is left of the operations' arguments
	records  []record // what is left of them
	ttl      string   // of the a and e that follow
	counters map[string]int64
	changed  []string // fields and values
}

const (
	proposalAhead = 1_000_000     // microseconds
	maxCounter    = 1<<53 - 1<<40 // beyond, a node fails
)

const (
	errEpoch    = redlock.ServerError("EPOCH another incarnation than the one that was admitted")
	errCounters = redlock.ServerError("COUNTERS its fencing counters are gone")
)

// ballot is ballot.lua: the operations in turn, each with its own reply.
func ballot(c call, keys, argv []string) redlock.Reply {
	if len(keys) < 1 || len(argv) < 4 {
		return refuse(simError("ballot: the node's key and four arguments at least: got %d keys and %d arguments", len(keys), len(argv)))
	}
	letters := argv[2]
	b := ballotCall{call: c, node: keys[0], args: argv[4:], counters: map[string]int64{}}
	if err := b.begin(argv[0], argv[1], argv[3]); err != nil {
		return refuse(err)
	}
	replies := make([]redlock.Reply, len(keys)-1)
	for i, key := range keys[1:] {
		if i >= len(letters) {
			return refuse(simError("ballot: more keys than operations"))
		}
		replies[i] = b.operate(letters[i], key)
	}
	b.writeCounters(letters, replies)
	return redlock.Reply{Array: replies}
}

// begin compares the epoch and reads the counters.
func (b *ballotCall) begin(epoch, notAfter, records string) error {
	var err error
	if b.records, err = parseRecords(records); err != nil {
		return err
	}
	limit, err := strconv.ParseInt(notAfter, 10, 64)
	if err != nil {
		return simError("ballot: %q is no not-after", notAfter)
	}
	b.late = b.now > limit && !b.variant(IgnoreNotAfter)
	b.why = b.admits(epoch)
	return nil
}

// admits says why this incarnation has no vote.
func (b *ballotCall) admits(epoch string) error {
	known, ok, err := b.hget(b.node, "epoch")
	switch {
	case epoch == "":
		return errEpoch
	case err != nil:
		return err
	case (!ok || known != epoch) && !b.variant(IgnoreEpoch):
		return errEpoch
	}
	for _, r := range b.records {
		text, _, _ := b.hget(b.node, r.field)
		count, err := strconv.ParseInt(text, 10, 64)
		if (err != nil || count < 0 || count > maxCounter) && !b.variant(IgnoreEpoch) {
			return errCounters
		}
		b.counters[r.field] = count
	}
	return nil
}

// operate executes the next operation.
func (b *ballotCall) operate(letter byte, key string) redlock.Reply {
	token := ""
	if letter != 'w' && letter != 'c' {
		token = b.next()
	}
	if strings.IndexByte("AE", letter) >= 0 {
		b.ttl = b.next()
		letter += 'a' - 'A'
	}
	ttl, r := "", record{}
	if letter == 'p' || letter == 'x' {
		ttl = b.next()
	}
	if strings.IndexByte("afp", letter) >= 0 && len(b.records) > 0 {
		r, b.records = b.records[0], b.records[1:]
	}
	if b.why != nil && letter != 'r' {
		return refuse(b.why)
	}
	switch letter {
	case 'a':
		return b.acquire(key, token, r)
	case 'e':
		return b.extend(key, token)
	case 'r':
		return b.release(key, token)
	case 'w':
		return b.who(key)
	case 'f':
		return b.fence(key, token, r)
	case 'p':
		return b.repair(key, token, ttl, r)
	case 'x':
		return b.force(key, token, ttl)
	case 'c':
		return hgetallCommand(call{state: b.state, client: b.client, now: b.now, args: []string{b.node}})
	}
	return refuse(simError("ballot: %q is no operation", letter))
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

func (b *ballotCall) acquire(key, token string, r record) redlock.Reply {
	count := b.counters[r.field] + 1
	switch {
	case b.late:
		return refuse(errLate)
	case count > maxCounter:
		return failed("FULL its fencing counter %s is at its end", r.field)
	}
	if stored := b.store(key, token, true, b.ttl); stored.Err != nil {
		return stored
	}
	if !b.holds(key, token) {
		return b.who(key)
	}
	if r.value > count && r.value <= b.now+proposalAhead {
		count = r.value
	}
	b.note(r.field, count)
	return number(count)
}

const errLate = redlock.ServerError("LATE the attempt was over when it reached this node")

func (b *ballotCall) note(field string, count int64) {
	b.counters[field] = count
	b.changed = append(b.changed, field, strconv.FormatInt(count, 10))
}

func (b *ballotCall) raise(r record) redlock.Reply {
	if r.value > b.counters[r.field] {
		b.note(r.field, r.value)
	}
	return number(1)
}

// extend is PEXPIRE … GT: a key that never expires has the greatest of all
// expiries.
func (b *ballotCall) extend(key, token string) redlock.Reply {
	if !b.holds(key, token) {
		if b.variant(ExtendSets) {
			b.store(key, token, true, b.ttl)
			return number(bool01(b.holds(key, token)))
		}
		return number(-bool01(b.isForced(token)))
	}
	ms, err := strconv.ParseInt(b.ttl, 10, 64)
	if err != nil {
		return refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	if e := b.keys[key]; e.expiry != 0 {
		expiry := b.now/1000 + ms
		if !b.variant(ExtendShortens) {
			expiry = max(e.expiry, expiry)
		}
		e.expiry = expiry
		b.keys[key] = e
	}
	return number(1)
}

func (b *ballotCall) release(key, token string) redlock.Reply {
	if _, ok := b.lookup(key, b.now); !ok || !b.holds(key, token) && !b.variant(ReleaseBlindly) {
		return number(0)
	}
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	delete(b.keys, key)
	return number(1)
}

func (b *ballotCall) who(key string) redlock.Reply {
	c := b.call
	c.args = []string{key}
	value := get(c)
	switch {
	case value.Err != nil:
		return value
	case value.Nil:
		return list()
	}
	return list(value, pttl(c))
}

// fence raises the counter, if the lock is still the attempt's.
func (b *ballotCall) fence(key, token string, r record) redlock.Reply {
	if !b.holds(key, token) && !b.variant(FenceBlindly) {
		return number(0)
	}
	return b.raise(r)
}

func (b *ballotCall) repair(key, token, ttl string, r record) redlock.Reply {
	if b.late {
		return refuse(errLate)
	}
	if !b.isForced(token) {
		if stored := b.store(key, token, true, ttl); stored.Err != nil {
			return stored
		}
	}
	if !b.holds(key, token) {
		return number(0)
	}
	return b.raise(r)
}

// force deletes the lock if it is the token's, and notes that.
func (b *ballotCall) force(key, token, ttl string) redlock.Reply {
	if noted := b.store(forcedKey(token), "1", false, ttl); noted.Err != nil {
		return noted
	}
	if b.variant(ForceBlindly) {
		c := b.call
		c.args = []string{key}
		return del(c)
	}
	return b.release(key, token)
}

func (b *ballotCall) isForced(token string) bool {
	_, noted := b.lookup(forcedKey(token), b.now)
	return noted
}

func forcedKey(token string) string {
	sum := sha1.Sum([]byte(token))
	return "redlockd:forced:" + hex.EncodeToString(sum[:])
}

// writeCounters writes what changed. Where that fails, nothing was voted.
func (b *ballotCall) writeCounters(letters string, replies []redlock.Reply) {
	if len(b.changed) == 0 {
		return
	}
	err := b.hset(b.node, b.changed...)
	for i := range replies {
		if err != nil && strings.IndexByte("aAfp", letters[i]) >= 0 && replies[i].Int > 0 {
			replies[i] = refuse(err)
		}
	}
}

// holds tells whether key is the string token now.
func (c call) holds(key, token string) bool {
	e, ok := c.lookup(key, c.now)
	return ok && e.isString() && e.text == token
}

func bool01(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
