package redlock

import (
	"strconv"
	"time"
)

// clockSample is one reading of a node's clock: its TIME, less our BootTime,
// was between low and high, because the node read it at some instant between
// our sending and our receiving.
type clockSample struct {
	at        time.Duration // BootTime
	low, high time.Duration
	known     bool
	turn      uint64 // in the order of all nodes' samples
}

// sampleOf reads the answer to a TIME that was sent and answered at these
// BootTimes.
func sampleOf(reply *Reply, sent, heard time.Duration) clockSample {
	if len(reply.Array) != 2 {
		return clockSample{}
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	if err1 != nil || err2 != nil {
		return clockSample{}
	}
	read := time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
	return clockSample{at: heard, low: read - heard, high: read - sent, known: true}
}

// ms is what the node's clock showed, in milliseconds; 0: that is not known.
func (s clockSample) ms() int64 {
	if !s.known {
		return 0
	}
	return (s.low + s.at).Milliseconds()
}

// clockWatch notices a node's clock that does not run like ours: keys that
// expire too early are votes forgotten. It holds each sample against those of
// up to max_ttl before, so that a slow slew shows as well as a step.
type clockWatch struct {
	samples []clockSample // the oldest first
}

const clockSamples = 32 // how many are kept, spread over max_ttl

// note takes a sample and returns by how much more the node's clock moved than
// the drift allowance, and since when: the latest sample that shows it. 0 where it
// kept the allowance.
func (w *clockWatch) note(s clockSample, window time.Duration) (jump time.Duration, since uint64) {
	if !s.known {
		return 0, 0
	}
	for _, before := range w.samples { // the latest comes last
		if by := s.jumpSince(before); by != 0 {
			jump, since = by, before.turn
		}
	}
	w.keep(s, window)
	return jump, since
}

// movedSince is the most that the node's clock may have moved against ours.
func (s clockSample) movedSince(before clockSample) time.Duration {
	return max(s.high-before.low, before.high-s.low)
}

// jumpSince is positive where the node's clock gained too much, negative where
// it lost too much, for certain.
func (s clockSample) jumpSince(before clockSample) time.Duration {
	allowed := drift(s.at - before.at)
	switch {
	case s.low-before.high > allowed:
		return s.low - before.high
	case before.low-s.high > allowed:
		return s.high - before.low
	}
	return 0
}

func (w *clockWatch) keep(s clockSample, window time.Duration) {
	for len(w.samples) > 1 && s.at-w.samples[1].at > window {
		w.samples = w.samples[1:]
	}
	if n := len(w.samples); n > 1 && s.at-w.samples[n-2].at < window/clockSamples {
		w.samples[n-1] = s // too near to the one before
		return
	}
	w.samples = append(w.samples, s)
}
