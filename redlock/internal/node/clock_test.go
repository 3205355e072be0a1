package node

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// clockOf is a node's clock as a lane sees it: ahead of this host's clock by offset, and read at
// some instant of a round trip.
type clockOf struct {
	lane   *Lane
	now    time.Duration // this host's
	offset time.Duration
}

func newClockOf(offset time.Duration) *clockOf {
	c := &clockOf{now: time.Hour, offset: offset}
	c.lane = &Lane{clock: func() time.Duration { return c.now }, trip: &roundTrip{}}
	return c
}

// ask sends one TIME, with these times for the request and the reply.
func (c *clockOf) ask(request, reply time.Duration) {
	c.lane.trip.sent = c.now
	c.now += request
	micros := (c.now + c.offset).Microseconds()
	c.now += reply
	c.lane.trip.received = c.now
	c.now += rand.N(time.Second) // the answer is not processed at once
	c.lane.readTime(&redis.Reply{Array: []redis.Reply{
		{Str: strconv.FormatInt(micros/1e6, 10)},
		{Str: strconv.FormatInt(micros%1e6, 10)},
	}})
}

// The estimate of a node's clock never runs ahead of it, so no not-after time is ever too late.
// It is as exact as the fastest answer so far. Guards readTime.
func TestClockEstimate(t *testing.T) {
	c := newClockOf(490_000 * time.Hour)
	fastest := time.Hour
	for range 1000 {
		request, reply := rand.N(40*time.Millisecond), rand.N(40*time.Millisecond)
		c.ask(request, reply)
		fastest = min(fastest, reply)
		if behind := c.offset - c.lane.session.offset; behind < 0 || behind > fastest+time.Microsecond {
			t.Fatalf("the estimate is %v behind the clock, want 0 to %v, the fastest reply", behind, fastest)
		}
	}
}

// If a clock is stepped by more than a round trip, forward or back, the estimate follows with the
// first answer.
func TestClockStep(t *testing.T) {
	c := newClockOf(490_000 * time.Hour)
	for _, step := range []time.Duration{time.Hour, -time.Hour, 5 * time.Millisecond, -5 * time.Millisecond} {
		c.ask(time.Millisecond, time.Millisecond)
		c.offset += step
		c.ask(time.Millisecond, time.Millisecond)
		if behind := c.offset - c.lane.session.offset; behind < 0 || behind > time.Millisecond+time.Microsecond {
			t.Errorf("after a step of %v the estimate is %v behind, want 0 to 1 ms", step, behind)
		}
	}
}

// An invalid answer to TIME changes nothing.
func TestClockGarbage(t *testing.T) {
	c := newClockOf(490_000 * time.Hour)
	c.ask(0, 0)
	before := c.lane.session.offset
	for _, reply := range []redis.Reply{{}, {Int: 1}, {Array: []redis.Reply{{Str: "x"}, {Str: "1"}}}, {Array: []redis.Reply{{Str: "1"}, {Str: ""}}}, {Array: []redis.Reply{{Str: "1"}}}} {
		s := c.lane.readTime(&reply)
		if c.lane.session.offset != before || s.Known {
			t.Errorf("TIME answered %+v: offset %v, known: %v; want %v and false", reply, c.lane.session.offset, s.Known, before)
		}
	}
}
