package script

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Operation is one thing that a node does for one lock, in ballot.lua.
type Operation struct {
	Op       Opcode
	Key      string
	Token    string
	OldToken string        // of a hand-over: the token that is given back
	Kind     string        // of those that share
	TTL      time.Duration // of what takes, extends or repairs; else, how long what it leaves behind lasts
	Counter  CounterField  // of what takes, of fence and repair
	Fence    uint64        // what the counter is to become; of what takes, a proposal
}

// Opcode is what ballot.lua calls an operation. Its constants there have the same names.
type Opcode byte

const (
	Acquire      Opcode = 'a'
	AcquireAlso  Opcode = 'n'
	Join         Opcode = 's'
	HandOver     Opcode = 'h'
	Extend       Opcode = 'e'
	Release      Opcode = 'r'
	Who          Opcode = 'w'
	List         Opcode = 'l'
	RaiseCounter Opcode = 'f'
	Repair       Opcode = 'p'
	RepairShared Opcode = 'q'
	Force        Opcode = 'x'
	Wait         Opcode = 'i'
	Reserve      Opcode = 'k'
	IntendWrite  Opcode = 'm'
	EndWait      Opcode = 'd'
	ReadCounters Opcode = 'c'
)

// Takes tells whether the operation grants the lock.
func (l Opcode) Takes() bool {
	return l == Acquire || l == AcquireAlso || l == Join || l == HandOver
}

// Releases tells whether the operation removes what was taken: a node without a vote does
// it, too.
func (l Opcode) Releases() bool { return l == Release || l == EndWait }

// Counts tells whether the operation has a fencing counter.
func (l Opcode) Counts() bool {
	return l.Takes() || l == RaiseCounter || l == Repair || l == RepairShared
}

// NodeKey is the hash that each node keeps of itself: the field epoch, the fencing
// counters, and keeps, until when locks may be kept for somebody. Lock names cannot
// have it: they have a prefix, or are refused by check.
const NodeKey = admission.NodeKey

// MaxCounters is how many fencing counters a node has.
const MaxCounters = admission.MaxCounters

// CounterField is the field of a counter, two letters or digits.
type CounterField [2]byte

// counterAlphabet has 32 letters: two of them name a counter.
const counterAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

// FieldOf returns the field of the i-th counter.
func FieldOf(counter int) CounterField {
	return CounterField{counterAlphabet[counter/32], counterAlphabet[counter%32]}
}

// CounterIndex is the reverse of fieldOf.
func CounterIndex(field string) (index int, ok bool) {
	if len(field) != len(CounterField{}) {
		return 0, false
	}
	high, low := strings.IndexByte(counterAlphabet, field[0]), strings.IndexByte(counterAlphabet, field[1])
	return high*32 + low, high >= 0 && low >= 0
}

// CounterOf is the counter that a lock's key is hashed onto.
func CounterOf(key string) CounterField {
	h := fnv.New32a()
	h.Write([]byte(key))
	return FieldOf(int(h.Sum32() % MaxCounters))
}

// Fencing tokens are microseconds since 1970, or thereabouts.
const (
	fenceDigits = 16
	MaxFence    = admission.MaxToken
)

// Encoder makes one command of many operations.
type Encoder struct {
	letters []byte
	records []byte
	at      int           // where the arguments begin in the command
	said    time.Duration // the ttl that stands for those after it, in this command
	ttl     time.Duration // the last one that was written
	ttlText string
}

// Begin begins the arguments of ballot.lua, which stand behind the keys of all operations.
func (e *Encoder) Begin(command redis.Command, epoch string, notAfter time.Duration) redis.Command {
	e.letters, e.records, e.said = e.letters[:0], e.records[:0], 0
	e.at = len(command)
	return append(command, epoch, strconv.FormatInt(notAfter.Microseconds(), 10), "", "")
}

// End writes the opcodes and the counters of all operations that were appended.
func (e *Encoder) End(command redis.Command) {
	command[e.at+2], command[e.at+3] = string(e.letters), string(e.records)
}

// Append appends the arguments of one operation.
func (e *Encoder) Append(command redis.Command, o *Operation) redis.Command {
	letter := byte(o.Op)
	command = e.appendWords(command, o)
	if (o.Op.Takes() || o.Op == Extend) && o.TTL != e.said {
		letter -= 'a' - 'A'
		e.said = o.TTL
		command = append(command, e.millis(o.TTL))
	}
	e.letters = append(e.letters, letter)
	if o.Op.Counts() {
		e.records = appendRecord(e.records, o.Counter, o.Fence)
	}
	return command
}

// appendWords appends the arguments of an operation, without a ttl that holds for later
// operations as well.
func (e *Encoder) appendWords(command redis.Command, o *Operation) redis.Command {
	switch o.Op {
	case Who, List, ReadCounters:
		return command
	case HandOver:
		return append(command, o.OldToken, o.Token)
	case Join:
		return append(command, o.Token, o.Kind)
	case Repair, Force, Wait, Reserve, IntendWrite:
		return append(command, o.Token, e.millis(o.TTL))
	case RepairShared:
		return append(command, o.Token, e.millis(o.TTL), o.Kind)
	}
	return append(command, o.Token)
}

// millis writes a ttl. Most are the same as the last one.
func (e *Encoder) millis(ttl time.Duration) string {
	if ttl != e.ttl || e.ttlText == "" {
		e.ttl, e.ttlText = ttl, strconv.FormatInt(max(ttl.Milliseconds(), 1), 10)
	}
	return e.ttlText
}

// appendRecord appends a counter's field and a fencing token in 16 digits.
func appendRecord(b []byte, field CounterField, fence uint64) []byte {
	var digits [fenceDigits]byte
	for i := fenceDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + fence%10)
		fence /= 10
	}
	return append(append(b, field[:]...), digits[:]...)
}

// Records are the records of all counters; nil: of none.
func Records(counters *admission.Counters) []byte {
	if counters == nil {
		return nil
	}
	b := make([]byte, 0, MaxCounters*(len(CounterField{})+fenceDigits))
	for i, value := range counters {
		b = appendRecord(b, FieldOf(i), value)
	}
	return b
}

// ParseFence reads a counter or a fencing token of a node's. One that is out of
// range is none.
func ParseFence(text string) (fence uint64, ok bool) {
	fence, err := strconv.ParseUint(text, 10, 64)
	return fence, err == nil && IsFence(fence)
}

// IsFence tells whether a number can be a fencing token.
func IsFence(fence uint64) bool { return fence > 0 && fence <= MaxFence }
