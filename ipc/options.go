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

// forever is Forever in the protocol.
const forever = "forever"

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
	key         string
	set         OptionSet
	value       func(*Options) any // returns a pointer to its value
	least, most int                // bounds of a number, or of the bytes of a text
}

var optionWords = [...]optionWord{
	{key: "ttl", set: OptTTL, value: func(o *Options) any { return &o.TTL }},
	{key: "wait", set: OptWait, value: func(o *Options) any { return &o.Wait }},
	{key: "mode", set: OptMode, value: func(o *Options) any { return &o.Mode }},
	{key: "slots", set: OptSlots, value: func(o *Options) any { return &o.Slots }, least: 1, most: MaxSlots},
	{key: "hold", set: OptHold, value: func(o *Options) any { return &o.Hold }},
	{key: "pid", set: OptPID, value: func(o *Options) any { return &o.PID }, least: 1, most: math.MaxInt32},
	{key: "max", set: OptMax, value: func(o *Options) any { return &o.Max }},
	{key: "linger", set: OptLinger, value: func(o *Options) any { return &o.Linger }},
	{key: "beat", set: OptBeat, value: func(o *Options) any { return &o.Beat }},
	{key: "owner", set: OptOwner, value: func(o *Options) any { return &o.Owner }, least: 1, most: MaxOwner},
	{key: "guard", set: OptGuard, value: func(o *Options) any { return &o.Guard }},
	{key: "reentrant", set: OptReentrant, value: func(o *Options) any { return &o.Reentrant }},
	{key: "note", set: OptNote, value: func(o *Options) any { return &o.Note }, most: MaxNote},
	{key: "id", set: OptID, value: func(o *Options) any { return &o.ID }, least: 1, most: MaxID},
	{key: "lease", set: OptLease, value: func(o *Options) any { return &o.Lease }, least: 1, most: MaxLease},
	{key: "all", set: OptAll, value: func(o *Options) any { return &o.All }},
	{key: "from", set: OptFrom, value: func(o *Options) any { return &o.From }, least: 1, most: MaxFrom},
	{key: "min", set: OptMin, value: func(o *Options) any { return &o.Min }},
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

// option returns the option with a key, or nil.
func option(key string) *optionWord {
	for i := range optionWords {
		if optionWords[i].key == key {
			return &optionWords[i]
		}
	}
	return nil
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

// assign sets the option to a value of the protocol.
func (o *Options) assign(option *optionWord, word string) error {
	value, err := unescape(word)
	if err != nil {
		return err
	}
	var n int
	switch to := option.value(o).(type) {
	case *time.Duration:
		if option.set == OptWait && value == forever {
			*to = Forever
		} else {
			*to, err = parseDuration(value)
		}
	case *string:
		*to = value
		if len(value) < option.least || len(value) > option.most {
			return fmt.Errorf("it has %d bytes; %d to %d are allowed", len(value), option.least, option.most)
		}
	case *int:
		n, err := strconv.ParseUint(value, 10, 31)
		if *to = int(n); err != nil || *to < option.least || *to > option.most {
			return fmt.Errorf("it must be a number from %d to %d", option.least, option.most)
		}
	case *bool:
		n, err = yesNo.parse(value)
		*to = n == 1
	case *Mode:
		n, err = modes.parse(value)
		*to = Mode(n)
	case *Hold:
		n, err = holds.parse(value)
		*to = Hold(n)
	}
	return err
}

// appendTo appends the options that are set.
func (o *Options) appendTo(b []byte) []byte {
	for i := range optionWords {
		word := &optionWords[i]
		if !o.Has(word.set) {
			continue
		}
		b = append(b, ' ')
		b = append(b, word.key...)
		b = append(b, '=')
		switch value := word.value(o).(type) {
		case *time.Duration:
			if word.set == OptWait && *value == Forever {
				b = append(b, forever...)
			} else {
				b = appendDuration(b, *value)
			}
		case *string:
			b = appendEscaped(b, *value)
		case *int:
			b = strconv.AppendInt(b, int64(*value), 10)
		case *bool:
			if *value {
				b = append(b, "yes"...)
			} else {
				b = append(b, "no"...)
			}
		case *Mode:
			b = append(b, value.String()...)
		case *Hold:
			b = append(b, value.String()...)
		}
	}
	return b
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

// appendDuration appends milliseconds, rounded up, so that a wait of a microsecond does not become
// 0. A negative duration becomes 0.
func appendDuration(b []byte, d time.Duration) []byte {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.AppendInt(b, max(ms, 0), 10)
}
