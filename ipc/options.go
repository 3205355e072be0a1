package ipc

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
)

// Forever is the value of Options.Wait for wait=forever.
const Forever = time.Duration(-1)

// Bounds of option values, in decoded bytes.
const (
	MaxNote  = 200
	MaxOwner = 64
	MaxID    = 64
	MaxLease = 128
	MaxFrom  = 128

	MaxSlots = 1000 // slots of a semaphore
)

// Options are the key=value words of a request. Set says which were given. The others are zero,
// because this package does not know their defaults.
type Options struct {
	Set                                      OptionSet
	TTL, Wait, Max, Min, Guard, Linger, Beat time.Duration // whole milliseconds; Wait may be Forever
	Mode                                     Mode
	Slots                                    int
	Hold                                     Hold
	PID                                      int
	Owner, Note, ID, Lease                   string
	Reentrant                                bool
	All                                      bool   // of LIST: list the locks of all hosts
	From                                     string // of LIST: start of the next page
}

// OptionSet is a set of options.
type OptionSet uint32

// The options, in the order in which AppendTo writes them.
const (
	OptTTL OptionSet = 1 << iota
	OptWait
	OptMode
	OptSlots
	OptHold
	OptPID
	OptMax
	OptLinger
	OptBeat
	OptOwner
	OptGuard
	OptReentrant
	OptNote
	OptID
	OptLease
	OptAll
	OptFrom
	OptMin
)

// Has reports whether all of options are in the set.
func (s OptionSet) Has(options OptionSet) bool { return s&options == options }

// Has reports whether all of options were given.
func (o *Options) Has(options OptionSet) bool { return o.Set.Has(options) }

// optionWord is the spelling of an option.
type optionWord struct {
	key string
	set OptionSet
}

var optionWords = [...]optionWord{
	{"ttl", OptTTL}, {"wait", OptWait}, {"mode", OptMode}, {"slots", OptSlots}, {"hold", OptHold},
	{"pid", OptPID}, {"max", OptMax}, {"linger", OptLinger}, {"beat", OptBeat}, {"owner", OptOwner},
	{"guard", OptGuard}, {"reentrant", OptReentrant}, {"note", OptNote}, {"id", OptID}, {"lease", OptLease}, {"all", OptAll}, {"from", OptFrom},
	{"min", OptMin},
}

// words yields the options of the set, in order.
func (s OptionSet) words() iter.Seq[optionWord] {
	return func(yield func(optionWord) bool) {
		for _, word := range optionWords {
			if s.Has(word.set) && !yield(word) {
				return
			}
		}
	}
}

// String lists the options of the set like "ttl= wait=", or returns "no options".
func (s OptionSet) String() string {
	if s == 0 {
		return "no options"
	}
	var b strings.Builder
	for word := range s.words() {
		b.WriteString(" " + word.key + "=")
	}
	return b.String()[1:]
}

// removed has the options of earlier versions, and the version that removed each.
var removed = map[string]string{"retain": "0.9.0"}

// option returns the option with that key.
func option(key string) (OptionSet, bool) {
	for i := range optionWords {
		if optionWords[i].key == key {
			return optionWords[i].set, true
		}
	}
	return 0, false
}

// Mode says whether several holders can share a lock.
type Mode uint8

// The modes. Exclusive is the default.
const (
	Exclusive Mode = iota
	Shared
)

func (m Mode) String() string { return modes.word(int(m)) }

// Hold says what keeps a lease extended.
type Hold uint8

// The kinds of hold. HoldConn is the default.
const (
	HoldConn Hold = iota // while the connection is open
	HoldPID              // while the process lives
	HoldTTL              // nothing: the lease expires after its ttl
)

func (h Hold) String() string { return holds.word(int(h)) }

// choice lists the words that an option accepts, by value.
type choice []string

var (
	modes = choice{Exclusive: "exclusive", Shared: "shared"}
	holds = choice{HoldConn: "conn", HoldPID: "pid", HoldTTL: "ttl"}
	yesNo = choice{"no", "yes"}
)

func (c choice) word(i int) string {
	if i >= len(c) {
		return "unknown"
	}
	return c[i]
}

func (c choice) parse(word string) (int, error) {
	for i := range c {
		if c[i] == word {
			return i, nil
		}
	}
	return 0, fmt.Errorf("it must be %s", strings.Join(c, " or "))
}

// assign sets one option from a word of a request. Its error does not name the option.
func (o *Options) assign(which OptionSet, word string) error {
	value, err := unescape(word)
	if err != nil {
		return err
	}
	var n int
	switch which {
	case OptTTL:
		o.TTL, err = parseDuration(value)
	case OptWait:
		o.Wait, err = parseWait(value)
	case OptMode:
		n, err = modes.parse(value)
		o.Mode = Mode(n)
	case OptSlots:
		o.Slots, err = parseCount(value, MaxSlots)
	case OptHold:
		n, err = holds.parse(value)
		o.Hold = Hold(n)
	case OptPID:
		o.PID, err = parseCount(value, math.MaxInt32)
	case OptMax:
		o.Max, err = parseDuration(value)
	case OptMin:
		o.Min, err = parseDuration(value)
	case OptLinger:
		o.Linger, err = parseDuration(value)
	case OptBeat:
		o.Beat, err = parseDuration(value)
	case OptOwner:
		o.Owner, err = parseText(value, 1, MaxOwner)
	case OptGuard:
		o.Guard, err = parseDuration(value)
	case OptReentrant:
		n, err = yesNo.parse(value)
		o.Reentrant = n == 1
	case OptNote:
		o.Note, err = parseText(value, 0, MaxNote)
	case OptID:
		o.ID, err = parseText(value, 1, MaxID)
	case OptLease:
		o.Lease, err = parseText(value, 1, MaxLease)
	case OptAll:
		n, err = yesNo.parse(value)
		o.All = n == 1
	case OptFrom:
		o.From, err = parseText(value, 1, MaxFrom)
	}
	return err
}

// appendTo appends " key=value" for each option that is set.
func (o *Options) appendTo(b []byte) []byte {
	for i := range optionWords {
		if word := &optionWords[i]; o.Has(word.set) {
			b = append(b, ' ')
			b = append(b, word.key...)
			b = append(b, '=')
			b = o.appendValue(b, word.set)
		}
	}
	return b
}

func (o *Options) appendValue(b []byte, which OptionSet) []byte {
	switch which {
	case OptTTL:
		return appendDuration(b, o.TTL)
	case OptWait:
		return appendWait(b, o.Wait)
	case OptMode:
		return append(b, o.Mode.String()...)
	case OptSlots:
		return strconv.AppendInt(b, int64(o.Slots), 10)
	case OptHold:
		return append(b, o.Hold.String()...)
	case OptPID:
		return strconv.AppendInt(b, int64(o.PID), 10)
	case OptMax:
		return appendDuration(b, o.Max)
	case OptMin:
		return appendDuration(b, o.Min)
	case OptLinger:
		return appendDuration(b, o.Linger)
	case OptBeat:
		return appendDuration(b, o.Beat)
	case OptOwner:
		return appendEscaped(b, o.Owner)
	case OptGuard:
		return appendDuration(b, o.Guard)
	case OptReentrant:
		return append(b, yesNo.word(yesOrNo(o.Reentrant))...)
	case OptNote:
		return appendEscaped(b, o.Note)
	case OptID:
		return appendEscaped(b, o.ID)
	case OptLease:
		return appendEscaped(b, o.Lease)
	case OptAll:
		return append(b, yesNo.word(yesOrNo(o.All))...)
	default: // OptFrom, the last one
		return appendEscaped(b, o.From)
	}
}

func yesOrNo(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func parseText(value string, minLen, maxLen int) (string, error) {
	if len(value) < minLen || len(value) > maxLen {
		return "", fmt.Errorf("it has %d bytes; %d to %d are allowed", len(value), minLen, maxLen)
	}
	return value, nil
}

func parseCount(value string, limit uint64) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n == 0 || n > limit {
		return 0, fmt.Errorf("it must be a number from 1 to %d", limit)
	}
	return int(n), nil
}

func parseWait(value string) (time.Duration, error) {
	if value == "forever" {
		return Forever, nil
	}
	return parseDuration(value)
}

var (
	errDuration = errors.New("a duration is a whole number with ms, s, m or h (such as 250ms, 10s or 2m), or a bare number of milliseconds")
	errTooLarge = fmt.Errorf("the largest duration is %dh", math.MaxInt64/int64(time.Hour))
)

// parseDuration reads 250ms, 10s, 2m, 1h, or a bare number of milliseconds.
func parseDuration(value string) (time.Duration, error) {
	digits := 0
	for digits < len(value) && '0' <= value[digits] && value[digits] <= '9' {
		digits++
	}
	unit, ok := unitOf(value[digits:])
	if digits == 0 || !ok {
		return 0, errDuration
	}
	n, err := strconv.ParseInt(value[:digits], 10, 64)
	if err != nil || n > math.MaxInt64/int64(unit) {
		return 0, errTooLarge
	}
	return time.Duration(n) * unit, nil
}

func unitOf(suffix string) (time.Duration, bool) {
	switch suffix {
	case "", "ms":
		return time.Millisecond, true
	case "s":
		return time.Second, true
	case "m":
		return time.Minute, true
	case "h":
		return time.Hour, true
	}
	return 0, false
}

func appendWait(b []byte, d time.Duration) []byte {
	if d == Forever {
		return append(b, "forever"...)
	}
	return appendDuration(b, d)
}

// appendDuration appends milliseconds, rounded up, so that a wait of a microsecond does not become
// 0. A negative duration becomes 0.
func appendDuration(b []byte, d time.Duration) []byte {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.AppendInt(b, max(ms, 0), 10)
}
