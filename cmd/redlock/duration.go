package main

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// durationFlag is a flag whose value is a duration: 250ms, 10s, 2m, 1h30m, or a
// number of seconds, as with flock: 5 or 0.5.
type durationFlag time.Duration

var errDuration = errors.New("wanted is a time such as 250ms, 10s or 2m, or a number of seconds such as 5 or 0.5")

// Set is called for a value on the command line.
func (d *durationFlag) Set(word string) error {
	parsed, err := time.ParseDuration(word)
	if seconds, bare := strconv.ParseFloat(word, 64); bare == nil {
		parsed, err = ofSeconds(seconds)
	}
	if err != nil || parsed < 0 {
		return errDuration
	}
	*d = durationFlag(parsed)
	return nil
}

// ofSeconds refuses what no duration can hold, NaN among it.
func ofSeconds(seconds float64) (time.Duration, error) {
	nanoseconds := seconds * float64(time.Second)
	if !(nanoseconds >= 0 && nanoseconds < math.MaxInt64) {
		return 0, errDuration
	}
	return time.Duration(math.Round(nanoseconds)), nil
}

func (d *durationFlag) String() string { return time.Duration(*d).String() }

// Type is what help calls the value.
func (d *durationFlag) Type() string { return "DUR" }
