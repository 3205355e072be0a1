package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// reported collects the calls of Options.RoundTrip and Options.Extended.
type reported struct {
	mu    sync.Mutex // guards what follows
	trips map[string][]time.Duration
	left  []time.Duration
	ttls  []time.Duration
}

func (r *reported) collect(o *redlock.Options) {
	o.RoundTrip = func(node string, took time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.trips[node] = append(r.trips[node], took)
	}
	o.Extended = func(left, ttl time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.left, r.ttls = append(r.left, left), append(r.ttls, ttl)
	}
}

// forget clears the collected calls.
func (r *reported) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips, r.left, r.ttls = map[string][]time.Duration{}, nil, nil
}

// RoundTrip is called once for each answer, with its node. Without an answer it is not called.
// Guards roundTrip.
func TestRoundTripsAreReported(t *testing.T) {
	r := &reported{}
	r.forget()
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms) // away from the heartbeats
		f.delay(each(ms), each(2*ms))
		f.sims[2].Hang()
		r.forget()
		f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second})
		time.Sleep(100 * ms)
		f.sims[2].Down()
		time.Sleep(100 * ms)
		r.mu.Lock()
		defer r.mu.Unlock()
		for node, took := range map[string]time.Duration{"a": 3 * ms, "b": 6 * ms} {
			want(t, "round trips of "+node, len(r.trips[node]), 1)
			want(t, "round trip of "+node, r.trips[node][0], took)
		}
		want(t, "round trips of a node that hangs and dies", len(r.trips["c"]), 0)
	}, r.collect)
}

// A due extension is reported with the time that the lease had left before it. An extension that
// a client requested is not reported. Guards keeper.confirmed: `!changes`.
func TestExtensionsAreReported(t *testing.T) {
	r := &reported{}
	r.forget()
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms) // away from the heartbeats
		f.delay(each(ms), each(2*ms))
		l, _ := f.watch(kept3s)
		wantErr(t, "extended", l.Extend(t.Context(), 0), nil)
		before := l.Deadline()
		f.at(l.Since(), 1200*ms)
		r.mu.Lock()
		defer r.mu.Unlock()
		want(t, "extensions", len(r.left), 1)
		want(t, "of a ttl", r.ttls[0], 3*time.Second)
		confirmed := l.Deadline() - 3*time.Second + 32*ms + 6*ms // when the extension was sent, and 6 ms later node b answered
		want(t, "left", r.left[0], before-confirmed)
	}, r.collect)
}

// wrapConns wraps each connection of node with wrap.
func wrapConns(node *redlock.Node, wrap func(redlock.Conn) redlock.Conn) {
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
}
