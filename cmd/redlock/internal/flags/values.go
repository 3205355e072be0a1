package flags

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Value implements pflag.Value. pflag's own types do not fit: they accept no bare number of
// seconds, they mark names of values with backquotes, which shells show in completions, and their
// errors quote strconv.
type Value struct {
	kind string // name of the value in help
	set  func(word string) error
	show func() string
}

// Set parses a value of the command line.
func (v *Value) Set(word string) error { return v.set(word) }

func (v *Value) String() string {
	if v.show == nil { // pflag asks a zero value for its default
		return ""
	}
	return v.show()
}

// Type names the value in help.
func (v *Value) Type() string { return v.kind }

// New returns a value without a default.
func New(kind string, set func(word string) error) *Value {
	return &Value{kind: kind, set: set, show: func() string { return "" }}
}

// Text returns a value that takes any text.
func Text(to *string, kind string) *Value {
	return &Value{
		kind: kind,
		set:  func(word string) error { *to = word; return nil },
		show: func() string { return *to },
	}
}

// Duration returns a value that takes a time such as 250ms, 10s or 1h30m or, like flock, a
// number of seconds such as 5 or 0.5. Help shows no default of 0: the usage text says what it means.
func Duration(to *time.Duration) *Value {
	isSet := *to != 0
	return &Value{
		kind: "DUR",
		set: func(word string) (err error) {
			d, err := parseDuration(word)
			if err == nil {
				*to, isSet = d, true
			}
			return err
		},
		show: func() string {
			if !isSet {
				return ""
			}
			return to.String()
		},
	}
}

var errDuration = errors.New("must be a time such as 250ms, 10s or 2m, or a number of seconds such as 5 or 0.5")

func parseDuration(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if seconds, bare := strconv.ParseFloat(word, 64); bare == nil {
		d, err = fromSeconds(seconds)
	}
	if err != nil || d < 0 {
		return 0, errDuration
	}
	return d, nil
}

// fromSeconds rejects NaN and numbers that do not fit a duration.
func fromSeconds(seconds float64) (time.Duration, error) {
	nanoseconds := seconds * float64(time.Second)
	if !(nanoseconds >= 0 && nanoseconds < math.MaxInt64) {
		return 0, errDuration
	}
	return time.Duration(math.Round(nanoseconds)), nil
}

// Number returns a value that takes a whole number from minimum to maximum.
func Number(to *int, kind string, minimum, maximum int) *Value {
	return &Value{
		kind: kind,
		set: func(word string) error {
			n, err := strconv.ParseInt(word, 0, strconv.IntSize)
			switch {
			case err == nil && minimum <= int(n) && int(n) <= maximum:
				*to = int(n)
				return nil
			case minimum == math.MinInt:
				return fmt.Errorf("must be a number")
			case maximum == math.MaxInt:
				return fmt.Errorf("must be a number of at least %d", minimum)
			}
			return fmt.Errorf("must be a number from %d to %d", minimum, maximum)
		},
		show: func() string { return strconv.Itoa(*to) },
	}
}

// AnyNumber returns a value that takes any whole number. The caller checks the bounds, with a
// better error.
func AnyNumber(to *int, kind string) *Value { return Number(to, kind, math.MinInt, math.MaxInt) }
