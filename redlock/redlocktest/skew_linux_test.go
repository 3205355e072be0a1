package redlocktest

import (
	"strconv"
	"testing"
	"time"
)

func TestServerClockIsStepped(t *testing.T) {
	s := StartRedis(t, 1, Skewable()).Servers[0]
	for _, ahead := range []time.Duration{0, 90 * time.Second, -90 * time.Second, 0} {
		if err := s.SetClock(ahead); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(clockOf(t, s)) - ahead; off.Abs() > time.Second {
			t.Errorf("stepped by %v: its clock is off by %v", ahead, off)
		}
	}
	if err := s.SetClock(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if off := time.Until(clockOf(t, s)) - time.Hour; off.Abs() > time.Second {
		t.Errorf("after a restart its clock is off by %v", off)
	}
}

// A clock that runs fast gains: ten seconds a second here. TIME is asked between two instants of this
// host's clock, so the exact bounds are known.
func TestServerClockRate(t *testing.T) {
	s := StartRedis(t, 1, Skewable()).Servers[0]
	before := time.Now()
	if err := s.SetClockRate(11); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	if err := s.Restart(); err != nil { // the rate outlasts restarts
		t.Fatal(err)
	}
	asked := time.Now()
	got := clockOf(t, s)
	answered := time.Now()
	least, most := asked.Add(10*asked.Sub(after)), answered.Add(10*answered.Sub(before))
	if got.Before(least.Add(-time.Millisecond)) || got.After(most.Add(time.Millisecond)) {
		t.Errorf("TIME is %v, want between %v and %v", got, least, most)
	}
}

// TestServerClockExpiresKeys: a step forward expires keys early.
func TestServerClockExpiresKeys(t *testing.T) {
	s := StartRedis(t, 1, Skewable()).Servers[0]
	if _, err := s.must("SET", "k", "v", "PX", "60000"); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "[k]")
	if err := s.SetClock(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "[]")
}

func TestServerClockNeedsSkewable(t *testing.T) {
	if err := StartRedis(t, 1).Servers[0].SetClock(time.Second); err == nil {
		t.Error("the clock of a server that is not Skewable was stepped")
	}
}

func clockOf(t *testing.T, s *Server) time.Time {
	t.Helper()
	reply, err := s.must("TIME")
	if err != nil || len(reply.Array) != 2 {
		t.Fatalf("TIME: %+v, error %v", reply, err)
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return time.Unix(seconds, 1000*micros)
}
