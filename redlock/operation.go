package redlock

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// operation is one thing that a node is asked to do for one lock: one of those
// of ballot.lua.
type operation struct {
	letter  opLetter
	key     string
	token   string
	old     string        // of a hand-over: the token that is given back
	kind    string        // of those that share
	ttl     time.Duration // of what takes, extends or repairs; else, how long what it leaves behind lasts
	counter counterField  // of what takes, of fence and repair
	fence   uint64        // what the counter is to become; of what takes, a proposal
}

// opLetter is what ballot.lua calls an operation.
type opLetter byte

const (
	opAcquire  opLetter = 'a'
	opAlso     opLetter = 'n'
	opJoin     opLetter = 's'
	opHandOver opLetter = 'h'
	opExtend   opLetter = 'e'
	opRelease  opLetter = 'r'
	opWho      opLetter = 'w'
	opList     opLetter = 'l'
	opFence    opLetter = 'f'
	opRepair   opLetter = 'p'
	opRejoin   opLetter = 'q'
	opForce    opLetter = 'x'
	opIntend   opLetter = 'i'
	opKeep     opLetter = 'k'
	opMark     opLetter = 'm'
	opDone     opLetter = 'd'
	opCounters opLetter = 'c'
)

// takes tells the operations that grant the lock.
func (l opLetter) takes() bool {
	return l == opAcquire || l == opAlso || l == opJoin || l == opHandOver
}

// gives tells the operations that give back what was taken: they are done without a
// vote, too.
func (l opLetter) gives() bool { return l == opRelease || l == opDone }

// counts tells the operations that have a fencing counter.
func (l opLetter) counts() bool {
	return l.takes() || l == opFence || l == opRepair || l == opRejoin
}

// nodeKey is the hash that each node keeps of itself: the field epoch, the fencing
// counters, and keeps, until when locks may be kept for somebody. Lock names cannot
// have it: they have a prefix, or are refused by check.
const nodeKey = admission.NodeKey

// maxCounters is how many fencing counters a node has.
const maxCounters = admission.MaxCounters

// counterField is the field of a counter, two letters or digits.
type counterField [2]byte

// counterAlphabet has 32 letters: two of them name a counter.
const counterAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

func fieldOf(counter int) counterField {
	return counterField{counterAlphabet[counter/32], counterAlphabet[counter%32]}
}

// counterIndex is the reverse of fieldOf.
func counterIndex(field string) (index int, ok bool) {
	if len(field) != len(counterField{}) {
		return 0, false
	}
	high, low := strings.IndexByte(counterAlphabet, field[0]), strings.IndexByte(counterAlphabet, field[1])
	return high*32 + low, high >= 0 && low >= 0
}

// counterOf is the counter that a lock's key is hashed onto.
func counterOf(key string) counterField {
	h := fnv.New32a()
	h.Write([]byte(key))
	return fieldOf(int(h.Sum32() % maxCounters))
}

// Fencing tokens are microseconds since 1970, or thereabouts.
const (
	fenceDigits = 16
	maxFence    = admission.MaxToken
)

// encoder makes one command of many operations.
type encoder struct {
	letters []byte
	records []byte
	ttl     time.Duration // the last one that was written
	ttlText string
}

// appendTo appends the words of an EVALSHA of ballot.lua behind its keys.
func (e *encoder) appendTo(command Command, epoch string, notAfter time.Duration, calls []call) Command {
	e.letters, e.records = e.letters[:0], e.records[:0]
	at := len(command)
	command = append(command, epoch, strconv.FormatInt(notAfter.Microseconds(), 10), "", "")
	said := time.Duration(0) // which ttl a and e stand for
	for i := range calls {
		for j := range calls[i].ops {
			command = e.append(command, &calls[i].ops[j], &said)
		}
	}
	command[at+2], command[at+3] = string(e.letters), string(e.records)
	return command
}

func (e *encoder) append(command Command, o *operation, said *time.Duration) Command {
	letter := byte(o.letter)
	command = e.appendWords(command, o)
	if (o.letter.takes() || o.letter == opExtend) && o.ttl != *said {
		letter -= 'a' - 'A'
		*said = o.ttl
		command = append(command, e.millis(o.ttl))
	}
	e.letters = append(e.letters, letter)
	if o.letter.counts() {
		e.records = appendRecord(e.records, o.counter, o.fence)
	}
	return command
}

// appendWords appends an operation's arguments, but for a ttl that may stand for
// those after it, too.
func (e *encoder) appendWords(command Command, o *operation) Command {
	switch o.letter {
	case opWho, opList, opCounters:
		return command
	case opHandOver:
		return append(command, o.old, o.token)
	case opJoin:
		return append(command, o.token, o.kind)
	case opRepair, opForce, opIntend, opKeep, opMark:
		return append(command, o.token, e.millis(o.ttl))
	case opRejoin:
		return append(command, o.token, e.millis(o.ttl), o.kind)
	}
	return append(command, o.token)
}

// millis writes a ttl. Most are the same as the last one.
func (e *encoder) millis(ttl time.Duration) string {
	if ttl != e.ttl || e.ttlText == "" {
		e.ttl, e.ttlText = ttl, strconv.FormatInt(max(ttl.Milliseconds(), 1), 10)
	}
	return e.ttlText
}

// appendRecord appends a counter's field and a fencing token in 16 digits.
func appendRecord(b []byte, field counterField, fence uint64) []byte {
	var digits [fenceDigits]byte
	for i := fenceDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + fence%10)
		fence /= 10
	}
	return append(append(b, field[:]...), digits[:]...)
}

// recordsOf are the records of all counters; nil: of none.
func recordsOf(counters *admission.Counters) []byte {
	if counters == nil {
		return nil
	}
	b := make([]byte, 0, maxCounters*(len(counterField{})+fenceDigits))
	for i, value := range counters {
		b = appendRecord(b, fieldOf(i), value)
	}
	return b
}

// parseFence reads a counter or a fencing token of a node's. One that is out of
// range is none.
func parseFence(text string) (fence uint64, ok bool) {
	fence, err := strconv.ParseUint(text, 10, 64)
	return fence, err == nil && isFence(fence)
}

func isFence(fence uint64) bool { return fence > 0 && fence <= maxFence }
