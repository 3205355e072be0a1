package admission

import (
	"strconv"
	"time"
)

// DriftAllowance returns by how much two clocks may differ after d: 1 %, plus 2 ms for the
// resolution of expiries in Redis ("Distributed locks", redis.io; the reference implementations
// of Redlock have the same).
func DriftAllowance(d time.Duration) time.Duration {
	return d/100 + 2*time.Millisecond
}

// ClockSample is one reading of a node's clock. The node read it at some instant between our
// sending and our receiving, so its TIME minus our BootTime was between Low and High.
type ClockSample struct {
	At        time.Duration // BootTime
	Low, High time.Duration
	Known     bool
	Turn      uint64 // position among all nodes' samples, see Fleet.NextTurn
}

// ReadClock parses the answer to a TIME that was sent and received at these readings of BootTime.
func ReadClock(seconds, micros string, sent, heard time.Duration) ClockSample {
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if err1 != nil || err2 != nil {
		return ClockSample{}
	}
	read := time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond
	return ClockSample{At: heard, Low: read - heard, High: read - sent, Known: true}
}

// milliseconds returns what the node's clock showed; 0 if that is not known.
func (s ClockSample) milliseconds() int64 {
	if !s.Known {
		return 0
	}
	return (s.Low + s.At).Milliseconds()
}

// clockWatch notices a node's clock that does not run like this host's: keys that expire too
// early are lost votes. It compares each sample with the samples of the last max_ttl, so it
// detects a slow slew as well as a step.
type clockWatch struct {
	samples []ClockSample // the oldest first
}

const clockSamples = 32 // how many are kept, spread over max_ttl

// note adds a sample. It returns by how much more than the drift allowance the node's clock moved
// (0: it kept within the allowance), and the turn of the latest sample that shows it.
func (w *clockWatch) note(s ClockSample, window time.Duration) (jump time.Duration, since uint64) {
	if !s.Known {
		return 0, 0
	}
	for _, before := range w.samples { // the latest comes last
		if by := s.jumpSince(before); by != 0 {
			jump, since = by, before.Turn
		}
	}
	w.keep(s, window)
	return jump, since
}

// movedSince returns the most that the node's clock may have moved against ours.
func (s ClockSample) movedSince(before ClockSample) time.Duration {
	return max(s.High-before.Low, before.High-s.Low)
}

// jumpSince returns a positive jump if the node's clock certainly gained more than the allowance,
// a negative one if it certainly lost more, else 0.
func (s ClockSample) jumpSince(before ClockSample) time.Duration {
	allowed := DriftAllowance(s.At - before.At)
	switch {
	case s.Low-before.High > allowed:
		return s.Low - before.High
	case before.Low-s.High > allowed:
		return s.High - before.Low
	}
	return 0
}

func (w *clockWatch) keep(s ClockSample, window time.Duration) {
	for len(w.samples) > 1 && s.At-w.samples[1].At > window {
		w.samples = w.samples[1:]
	}
	if n := len(w.samples); n > 1 && s.At-w.samples[n-2].At < window/clockSamples {
		w.samples[n-1] = s // too close to the previous one
		return
	}
	w.samples = append(w.samples, s)
}
