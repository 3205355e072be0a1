package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// TestDeadline: the deadline is start + ttl − drift, and start is before the first byte is sent.
// So neither the requests nor the replies lengthen a lease. An attempt ends with the deciding
// answer. Guards attempt: `start`, `deadline`.
func TestDeadline(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 4, 5, 7} {
		simTest(t, nodes, func(t *testing.T, f *fleet) {
			f.delay(each(2*ms), each(3*ms))
			start := f.now()
			l := f.acquire(redlock.Request{Name: "x", TTL: time.Second})
			deciding := time.Duration(nodes/2+1) * 5 * ms
			want(t, name("%d nodes: granted after", nodes), l.Since()-start, deciding)
			want(t, name("%d nodes: deadline after the start", nodes), l.Deadline()-start, time.Second-12*ms)
			want(t, name("%d nodes: validity", nodes), l.Validity(), time.Second-12*ms-deciding)
			f.release(l)
		})
	}
}

// If the quorum's answers come after the lease would have expired, nothing is granted and the
// keys are released. Guards attempt: `now < deadline`.
func TestValidityOver(t *testing.T) {
	for _, c := range []struct {
		reply time.Duration // the request takes 48 ms; with a ttl of 100 ms a lease is valid for 97 ms
		ok    bool
	}{{49*ms - 1, true}, {49 * ms, false}, {60 * ms, false}} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			f.delay(func(int) time.Duration { return 48 * ms }, func(int) time.Duration { return c.reply })
			l, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 100 * ms})
			if c.ok {
				want(t, "error with 1 ns of validity", err, nil)
				want(t, "validity", l.Validity(), 1)
				return
			}
			wantErr(t, "no validity", err, redlock.ErrNoQuorum)
			var late *redlock.NodeError
			if !errors.As(err, &late) || late.Failure != redlock.FailedLate || late.Node != "this host" {
				t.Errorf("got error %v, want this host to be late", err)
			}
			time.Sleep(48*ms + 1) // the releases need no answer; this is before any key expires
			f.wantNoKeys("after the releases")
		}, func(o *redlock.Options) { o.NodeTimeout = time.Second })
	}
}

// One hung node delays no client: neither the first attempt, which is sent to it, nor
// attempts that find its lane busy, nor its reconnects. Guards isDecidedLocked.
func TestHungNodeDelaysNoClient(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		simTest(t, nodes, func(t *testing.T, f *fleet) {
			f.delay(each(ms), each(ms))
			f.sims[0].Hang()
			quorumth := time.Duration(nodes/2+2) * 2 * ms // the hung node would be the fastest
			// The loop ends before the first heartbeat, whose round trip attempts would wait for.
			for i := range 40 {
				start := f.now()
				l := f.acquire(redlock.Request{Name: "x", TTL: time.Second})
				want(t, name("%d nodes: acquire %d took", nodes, i), f.now()-start, quorumth)
				f.release(l)
				time.Sleep(7 * ms)
			}
			f.sims[0].Resume()
			f.wantNever("after the node resumed", 2*time.Second)
		})
	}
}

// An even split is decided by the answer that completes it. No attempt waits for the node
// timeout.
func TestEvenSplit(t *testing.T) {
	for nodes, deciding := range map[int]time.Duration{2: 4 * ms, 4: 6 * ms} {
		simTest(t, nodes, func(t *testing.T, f *fleet) {
			foreign(f.sims[:nodes/2], "x", time.Minute)
			f.delay(each(ms), each(ms))
			a := f.start(t.Context(), redlock.Request{Name: "x", TTL: time.Second})
			_, err := a.wait()
			wantErr(t, "split vote", err, redlock.ErrHeld)
			want(t, name("%d nodes: took", nodes), a.took, deciding)
			time.Sleep(time.Second / 2)
			want(t, "keys left", len(f.keys()), nodes/2)
		})
	}
}

// If a quorum of nodes hangs, the attempt ends exactly at the node timeout and names these nodes.
// Guards Ballot.Wait: the timer.
func TestNoQuorumAfterNodeTimeout(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		every(f.sims[2:], hang)
		a := f.start(t.Context(), redlock.Request{Name: "x", TTL: time.Second})
		_, err := a.wait()
		wantNoQuorum(t, err, redlock.FailedTimeout, "c", "d", "e")
		want(t, "took", a.took, 50*ms)
		time.Sleep(time.Nanosecond) // if a node owes an answer for longer than that, it is not asked at all: admit
		a = f.start(t.Context(), redlock.Request{Name: "y", TTL: time.Second})
		_, err = a.wait()
		wantNoQuorum(t, err, redlock.FailedTimeout, "c", "d", "e")
		want(t, "the next attempt took", a.took, 0)
		time.Sleep(2 * time.Microsecond) // past the not-after, in the nodes' unit
		every(f.sims[2:], resume)
		f.wantNever("after the nodes resumed", 2*time.Second)
	})
}

// If a quorum of nodes is down, the attempt fails at once.
func TestNoQuorumAtOnce(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		every(f.sims[:3], down)
		time.Sleep(ms)
		a := f.start(t.Context(), redlock.Request{Name: "x", TTL: time.Second})
		_, err := a.wait()
		wantNoQuorum(t, err, redlock.FailedDown, "a", "b", "c")
		want(t, "took", a.took, 0)
		time.Sleep(ms)
		f.wantNoKeys("on the nodes that are up")
	})
}

// No quorum can vote for many times the ttl, because the nodes are down or silent. A waiter whose
// wait is longer is granted afterwards, and one whose wait is shorter fails at its end. Guards
// retryPolicy.next.
func TestOnlyWaitEndsAWaitForAQuorum(t *testing.T) {
	const outage, ttl = time.Minute, 2 * time.Second
	for what, fault := range map[string]struct{ begin, end func(*redlocktest.Sim) }{"down": {down, up}, "silent": {hang, resume}} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			every(f.sims[:3], fault.begin)
			time.Sleep(ms)
			short := f.start(t.Context(), redlock.Request{Name: "x", TTL: ttl, Wait: outage / 2})
			patient := []*acquisition{
				f.start(t.Context(), redlock.Request{Name: "y", TTL: ttl, Wait: redlock.Forever}),
				f.start(t.Context(), redlock.Request{Name: "z", TTL: ttl, Wait: outage + 10*time.Second}),
			}
			_, err := short.wait()
			wantErr(t, what, err, redlock.ErrNoQuorum)
			wantWithin(t, what+": failed after", short.took, outage/2, outage/2+250*ms)
			time.Sleep(outage - short.took)
			every(f.sims[:3], fault.end)
			for _, a := range patient {
				l, err := a.wait()
				if err != nil {
					t.Fatalf("%s: %v, want a grant after the outage", what, err)
				}
				wantWithin(t, what+": granted after", a.took, outage, outage+5*time.Second)
				f.release(l)
			}
		})
	}
}

// A short ttl does not bound the wait for a holder.
func TestForeverWaitsForHolder(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", 10*time.Second)
		a := f.start(t.Context(), redlock.Request{Name: "x", TTL: 200 * ms, Wait: redlock.Forever})
		l, err := a.wait()
		want(t, "error", err, nil)
		wantWithin(t, "granted after", a.took, 10*time.Second, 10*time.Second+5*ms)
		f.release(l)
	})
}

// TestHeldOrNoQuorum checks which error an attempt returns: for every mixture of free, taken and
// failing nodes with 1 to 4 nodes, and for every count of each with 5 nodes.
func TestHeldOrNoQuorum(t *testing.T) {
	for nodes := 1; nodes <= 4; nodes++ {
		simTest(t, nodes, func(t *testing.T, f *fleet) { f.everyMixture(make([]byte, 0, nodes)) })
	}
	simTest(t, 5, func(t *testing.T, f *fleet) {
		for _, mix := range []string{
			"FFFTT", "FFFXX", "FFFTX", "TTTFF", "TTTXX", "TTTFX", "TFTFT", "FFTTX", "FFTXX", "FTTXX", "FFXXX", "TTXXX", "FTXXX", "XXXXT", "XXXXX",
		} {
			f.checkMixture([]byte(mix))
		}
	})
}

func (f *fleet) everyMixture(mix []byte) {
	if len(mix) == len(f.sims) {
		f.checkMixture(mix)
		return
	}
	for _, state := range []byte("FTX") {
		f.everyMixture(append(mix, state))
	}
}

// checkMixture makes nodes free (F), taken (T) or failing (X), and checks the result of an
// attempt.
func (f *fleet) checkMixture(mix []byte) {
	var count [256]int
	for i, state := range mix {
		count[state]++
		switch state {
		case 'T':
			foreign(f.sims[i:i+1], "x", time.Hour)
		case 'X':
			f.sims[i].Refuse("LOADING Redis is loading the dataset in memory")
		}
	}
	quorum := len(mix)/2 + 1
	l, err := f.q.Acquire(f.Context(), redlock.Request{Name: "x", TTL: time.Second})
	switch {
	case count['F'] >= quorum:
		wantErr(f, string(mix), err, nil)
	case count['F']+count['T'] < quorum:
		wantErr(f, string(mix), err, redlock.ErrNoQuorum)
	default:
		wantErr(f, string(mix), err, redlock.ErrHeld)
	}
	want(f, string(mix)+": both ErrHeld and ErrNoQuorum", errors.Is(err, redlock.ErrHeld) && errors.Is(err, redlock.ErrNoQuorum), false)
	if l != nil {
		f.release(l)
	}
	f.afterMixture(string(mix), count['T'])
}

// afterMixture waits until the nodes that failed have answered what they owe, and cleans up.
func (f *fleet) afterMixture(mix string, taken int) {
	for _, sim := range f.sims {
		sim.Refuse("")
	}
	time.Sleep(1100 * ms) // a heartbeat
	want(f, mix+": keys left", len(f.keys()), taken)
	every(f.sims, forget)
}

// A waiter begins attempts until Wait ends, and none after that. Guards retryPolicy.next:
// `min(delay, p.deadline-now)`.
func TestWaitBounds(t *testing.T) {
	for _, wait := range []time.Duration{0, ms, 100 * ms, 2500 * ms} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			foreign(f.sims, "x", time.Hour)
			f.delay(each(ms), each(ms))
			attempts := 0
			a := f.start(t.Context(), redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: wait, Failed: func(error) { attempts++ }})
			_, err := a.wait()
			wantErr(t, "held for an hour", err, redlock.ErrHeld)
			// An attempt takes 4 ms, and up to 8 ms if it follows the release of the previous
			// one. The last one begins at the end of Wait, or is in progress then.
			wantWithin(t, name("wait %v: took", wait), a.took, max(wait, 4*ms), wait+8*ms)
			checkAttempts(t, wait, attempts)
			time.Sleep(time.Second)
			want(t, "keys left", len(f.keys()), 3)
		}, deaf)
	}
}

// checkAttempts checks the number of attempts. The limit of the random delay between them grows
// from 20 ms to 250 ms; a delay is at least a quarter of it.
func checkAttempts(t *testing.T, wait time.Duration, attempts int) {
	t.Helper()
	least, most := 1, 1
	if wait >= 100*ms {
		least, most = 3+int(wait/(255*ms)), 6+int(wait/(62*ms))
	}
	if attempts < least || attempts > most {
		t.Errorf("wait %v: %d attempts, want %d to %d", wait, attempts, least, most)
	}
}

// A waiter acquires a released lock. It acquires an expired lock at the instant at which it may
// be free. Guards retryPolicy.next: `held.TTL`.
func TestWaitForExpiry(t *testing.T) {
	for _, ttl := range []time.Duration{15 * ms, 100 * ms, time.Second} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			foreign(f.sims, "x", ttl)
			a := f.start(t.Context(), redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: time.Minute})
			_, err := a.wait()
			want(t, "error", err, nil)
			wantWithin(t, name("granted, of a key that expires in %v", ttl), a.took, ttl, ttl+3*ms)
		})
	}
}

// StopRetrying ends the delay between attempts at once. An attempt in progress is finished, and
// may be granted. Guards acquisition.pause.
func TestStopRetrying(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", time.Hour)
		stop := make(chan struct{})
		request := redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever, StopRetrying: stop}
		a := f.start(t.Context(), request)
		time.Sleep(100*ms + 1)
		close(stop)
		_, err := a.wait()
		wantErr(t, "stopped during the delay", err, redlock.ErrHeld)
		want(t, "took", a.took, 100*ms+1)
		synctest.Wait() // until nothing is in progress
		f.delay(each(ms), each(ms))
		a = f.start(t.Context(), request)
		_, err = a.wait()
		wantErr(t, "stopped before", err, redlock.ErrHeld)
		want(t, "one attempt took", a.took, 4*ms)
		every(f.sims, forget)
		f.acquire(request)
	})
}

// Each attempt has its own token, which is the same on each node. The attempt releases that token
// on each node, even on nodes that refused it. Guards attempt: newToken, abandon.
func TestFreshTokens(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		foreign(f.sims[:3], "x", time.Hour)
		j := f.record()
		f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: 3 * time.Second})
		time.Sleep(ms)
		asked, released := map[string]int{}, map[string]int{}
		for _, o := range j.of("a") {
			asked[o.token]++
		}
		for _, o := range j.of("r") {
			released[o.token]++
		}
		if len(asked) < 3 { // the number is random
			t.Errorf("%d attempts in 3 s, want at least 3", len(asked))
		}
		for token, nodes := range asked {
			want(t, "nodes that got "+token, nodes, 5)
			want(t, "nodes that got its release: all but the three that refused it", released[token], 2)
		}
	})
}

func TestBadRequests(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		for _, r := range []redlock.Request{
			{TTL: time.Second},
			{Name: "x"},
			{Name: "x", TTL: 100*ms - 1},
			{Name: "x", TTL: 30*time.Second + 1},
			{Name: "x", TTL: time.Second, Guard: -1},
			{Name: "x", TTL: time.Second, Guard: 501 * ms},
			{Name: "x", TTL: time.Second, Max: -1},
			{Name: "x", TTL: time.Second, Max: 100*ms - 1},
		} {
			if _, err := f.q.Acquire(t.Context(), r); !errors.Is(err, redlock.ErrRequest) {
				t.Errorf("%+v: got error %v, want %v", r, err, redlock.ErrRequest)
			}
		}
		want(t, "operations", f.sims[0].Counts().Commands["ballot"], 0)
	})
}

func TestBadOptions(t *testing.T) {
	node := redlock.Node{Name: "a"}
	for what, o := range map[string]redlock.Options{
		"no nodes":         {},
		"duplicate name":   {Nodes: []redlock.Node{node, node}},
		"64 nodes":         {Nodes: make([]redlock.Node, 64)},
		"negative timeout": {Nodes: []redlock.Node{node}, NodeTimeout: -1},
		"short max ttl":    {Nodes: []redlock.Node{node}, MaxTTL: ms},
	} {
		if _, err := redlock.New(o); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
