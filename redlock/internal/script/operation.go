package script

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Operation is one operation of ballot.lua on one lock.
type Operation struct {
	Op       Opcode
	Key      string
	Token    string        // of waiters: the entry; of WHO: the last one of the previous page; of a scan: the cursor
	OldToken string        // of a hand-over or an exchange: the token to replace
	Kind     string        // of operations on shared locks; of a scan: the pattern of the keys
	TTL      time.Duration // of the lock, if it takes, extends or repairs; otherwise of the key that it leaves
	Counter  CounterField  // of operations that take the lock, raise a counter or repair
	Ticket   time.Duration // of ENTER and REENTER: the position in the queue, as a time since 1970
	Fence    uint64        // the new value of the counter; a proposal, if the operation takes the lock
}

// pageSize is the COUNT of a scan. It occupies the node for about as long as other groups of
// calls.
const pageSize = "256"

// Opcode identifies an operation in ballot.lua, whose constants have the same names.
type Opcode byte

const (
	Acquire      Opcode = 'a'
	AcquireAlso  Opcode = 'n'
	Join         Opcode = 's'
	HandOver     Opcode = 'h'
	Extend       Opcode = 'e'
	Downgrade    Opcode = 'g'
	Exchange     Opcode = 'u'
	Confirm      Opcode = 'v'
	Release      Opcode = 'r'
	Who          Opcode = 'w'
	RaiseCounter Opcode = 'f'
	Repair       Opcode = 'p'
	RepairShared Opcode = 'q'
	NoteForced   Opcode = 'z'
	Force        Opcode = 'x'
	Enter        Opcode = 'i'
	Reenter      Opcode = 'k'
	EndWait      Opcode = 'd'
	ReadCounters Opcode = 'c'
	Scan         Opcode = 'y'
	Describe     Opcode = 'o'
)

// Takes reports whether the operation grants the lock.
func (l Opcode) Takes() bool {
	return l == Acquire || l == AcquireAlso || l == Join || l == HandOver
}

// Releases reports whether the operation removes what was taken. A node without a vote executes
// it, too.
func (l Opcode) Releases() bool { return l == Release || l == EndWait }

// Counts reports whether the operation has a fencing counter.
func (l Opcode) Counts() bool {
	return l.Takes() || l == Confirm || l == RaiseCounter || l == Repair || l == RepairShared
}

// NodeKey is the hash in which each node keeps its own data: the field epoch, the fencing
// counters, and queues, the instant until which clients may wait for a lock. No lock can have this key:
// locks have a prefix, or check refuses the name.
const NodeKey = admission.NodeKey

// EpochField is the field of the epoch.
const EpochField = "epoch"

// MaxCounters is the number of a node's fencing counters.
const MaxCounters = admission.MaxCounters

// CounterField is the field of a counter: two letters or digits.
type CounterField [2]byte

// counterAlphabet has 32 letters; two of them identify a counter.
const counterAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

// FieldOf returns the field of the i-th counter.
func FieldOf(counter int) CounterField {
	return CounterField{counterAlphabet[counter/32], counterAlphabet[counter%32]}
}

// CounterIndex is the reverse of FieldOf.
func CounterIndex(field string) (index int, ok bool) {
	if len(field) != len(CounterField{}) {
		return 0, false
	}
	high, low := strings.IndexByte(counterAlphabet, field[0]), strings.IndexByte(counterAlphabet, field[1])
	return high*32 + low, high >= 0 && low >= 0
}

// CounterOf returns the counter onto which a lock's key is hashed.
func CounterOf(key string) CounterField { return FieldOf(Bucket(key)) }

// Bucket returns the number of the counter onto which a lock's key is hashed.
func Bucket(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % MaxCounters)
}

// Fencing tokens are approximately microseconds since 1970.
const (
	fenceDigits = 16
	MaxFence    = admission.MaxFence
)

// Encoder encodes many operations in one command.
type Encoder struct {
	letters []byte
	records []byte
	at      int           // where the arguments begin in the command
	ttl     time.Duration // the last ttl that was written
	ttlText string
}

// Begin appends the first arguments of ballot.lua, which follow the keys of all operations.
func (e *Encoder) Begin(command redis.Command, epoch string, notAfter time.Duration) redis.Command {
	e.letters, e.records = e.letters[:0], e.records[:0]
	e.at = len(command)
	return append(command, epoch, strconv.FormatInt(notAfter.Microseconds(), 10), "", "")
}

// End writes the opcodes and the counters of all operations that were appended.
func (e *Encoder) End(command redis.Command) {
	command[e.at+2], command[e.at+3] = string(e.letters), string(e.records)
}

// Append appends one operation: its opcode, its counter and its arguments.
func (e *Encoder) Append(command redis.Command, o *Operation) redis.Command {
	e.letters = append(e.letters, byte(o.Op))
	if o.Op.Counts() {
		e.records = appendRecord(e.records, o.Counter, o.Fence)
	}
	switch o.Op {
	case Acquire, Extend, Downgrade, Confirm, Repair, NoteForced, Force:
		return append(command, o.Token, e.millis(o.TTL))
	case Enter, Reenter:
		return append(command, o.Token, strconv.FormatInt(o.Ticket.Microseconds(), 10))
	case Join:
		return append(command, o.Token, o.Kind, e.millis(o.TTL))
	case HandOver, Exchange:
		return append(command, o.OldToken, o.Token, e.millis(o.TTL))
	case RepairShared:
		return append(command, o.Token, e.millis(o.TTL), o.Kind)
	case Scan:
		return append(command, o.Token, o.Kind, pageSize)
	case ReadCounters, Describe:
		return command
	}
	return append(command, o.Token)
}

// millis returns a ttl as text. Most are equal to the last one.
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

// Records returns the records of all counters; nil: there are none.
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

// ParseFence parses a counter or a fencing token of a node. A value out of range is none.
func ParseFence(text string) (fence uint64, ok bool) {
	fence, err := strconv.ParseUint(text, 10, 64)
	return fence, err == nil && IsFence(fence)
}

// IsFence reports whether a number can be a fencing token.
func IsFence(fence uint64) bool { return fence > 0 && fence <= MaxFence }
