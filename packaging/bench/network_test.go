package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Nothing passes the network before its delay. Bytes arrive completely and in order, and the end of
// one side is passed on to the other.
func TestNetworkDelaysAndKeepsOrder(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() { // ends with the connection, which the test closes
		conn, err := echo.Accept()
		if err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	const oneWay = 5 * time.Millisecond
	d, err := newDelay(oneWay)
	if err != nil {
		t.Fatal(err)
	}
	address, err := d.listen(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go d.run() // has no end, and ends with the process
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := strings.Repeat("0123456789", 30_000)
	start := time.Now()
	go func() { // ends when everything is written; the test reads it
		io.WriteString(conn, sent)
		conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != sent {
		t.Errorf("got %d bytes, %v; want the %d that were sent", len(got), err, len(sent))
	}
	if took := time.Since(start); took < 2*oneWay {
		t.Errorf("a round trip took %v, want %v at least", took, 2*oneWay)
	}
}

func TestNetworkPart(t *testing.T) {
	env := testEnvironment(t)
	withSlices(t, 100*time.Millisecond, func(length time.Duration) error { return testNetworkPart(t, env, length) })
}

func testNetworkPart(t *testing.T, env *environment, length time.Duration) (short error) {
	rep := newReport(options{})
	o := options{rounds: 1, slice: length, rtt: 4 * time.Millisecond}
	if err := networkedPart(t.Context(), o, env, rep, io.Discard); err != nil {
		t.Fatal(err)
	}
	if rep.Network.P50 < rep.Network.Direct || rep.Network.P50 < 2 {
		t.Errorf("a round trip takes %v ms, want 4 or so", rep.Network.P50)
	}
	for _, one := range rep.NetworkRows {
		if one.Clashes > 0 {
			t.Errorf("%s, %s: %d clashes", one.Scenario, one.Contender, one.Clashes)
		}
		if one.Skipped == "" && (one.Rate == 0 || one.Failed > 0) {
			return fmt.Errorf("%s, %s: %v locks/s, %d failed (%s); want locks and nothing else", one.Scenario, one.Contender, one.Rate, one.Failed, one.Failure)
		}
		if one.Contender == redsyncGoRedis && one.Test == "one" && one.P50 < 2*rep.Network.P50*0.9 {
			t.Errorf("a pair of redsync takes %v ms, want two round trips", one.P50)
		}
	}
	if q, _ := rep.findNetwork("work", bare); q.HandOver == 0 {
		return fmt.Errorf("row of the bare queue: %+v, want hand-overs", q)
	}
	if _, ok := rep.findNetwork("work", twoHosts); !ok || len(targetsOf(rep)) < 9 {
		t.Errorf("rows %+v and targets %+v; want two hosts, and targets", rep.NetworkRows, targetsOf(rep))
	}
	return nil
}

func TestLongestWaitOfAHost(t *testing.T) {
	ms := func(all ...int) (grants []time.Duration) {
		for _, at := range all {
			grants = append(grants, time.Duration(at)*time.Millisecond)
		}
		return grants
	}
	for what, c := range map[string]struct {
		grants [][]time.Duration
		want   int
	}{
		"in the middle": {[][]time.Duration{ms(1, 50), ms(2, 10), ms(60), ms(55)}, 49}, // host 0: 1, 50, 60; host 1: 2, 10, 55
		"at the start":  {[][]time.Duration{ms(1, 2), ms(30, 31), ms(3), ms()}, 30},
		"at the end":    {[][]time.Duration{ms(1), ms(2, 90), ms(), ms()}, 89},
	} {
		got := sample{pairs: pairs{grants: c.grants}}.longestHostWait(2, 0)
		if got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%s: %v, want %d ms", what, got, c.want)
		}
	}
}

func TestNetworkTargets(t *testing.T) {
	r := &report{
		Network: &networkFigures{Wanted: 2, P50: 2.09},
		NetworkRows: []networkRow{
			{Test: "fresh", Contender: redlockdConns, Trips: 2.41},
			{Test: "work", Contender: redlockdConns, Rate: 750, RateRatio: 3.9, HandOver: 0.1},
			{Test: "no-work", Contender: redlockdConns, Rate: 9999},
			{Test: "work", Contender: twoHosts, HostRatio: 0.6, Fairness: 0.79, LongestWait: 106},
			{Test: "one", Contender: withoutWait, Trips: 1.1},
		},
	}
	var verdicts []string
	for _, one := range targetsOf(r) {
		verdicts = append(verdicts, map[bool]string{true: "pass", false: "MISS"}[one.Pass])
	}
	want := "pass MISS pass MISS pass MISS pass MISS pass pass"
	if got := strings.Join(verdicts, " "); got != want {
		t.Errorf("verdicts\n%s, want\n%s", got, want)
	}
}

// If a daemon does not know an option, its row has the reason in place of figures.
func TestUnknownOptionIsARefusal(t *testing.T) {
	f := testFleet(t)
	_, err := openRaw(context.Background(), f.daemon, " nonsense=1")
	if _, ok := err.(refusal); !ok {
		t.Errorf("got %v, want a refusal", err)
	}
}

// The bare queue grants its lock to the first waiter when the holder unlocks, not earlier.
func TestBareQueueIsInOrder(t *testing.T) {
	var q waiters
	var a, b, c strings.Builder
	q.lock(&a)
	q.lock(&b)
	q.lock(&c)
	for i, want := range [][3]string{{"OK\n", "", ""}, {"OK\n", "OK\n", ""}, {"OK\n", "OK\n", "OK\n"}} {
		if got := [3]string{a.String(), b.String(), c.String()}; got != want {
			t.Errorf("after %d unlocks: grants %q, want %q", i, got, want)
		}
		q.unlock()
	}
	if q.held || len(q.queue) > 0 {
		t.Errorf("after the last unlock: %+v, want a free lock", &q)
	}
}
