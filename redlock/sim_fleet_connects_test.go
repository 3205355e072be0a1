package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// handshakes is the part of a node that works off TLS handshakes in the order in which the hosts
// connected. It does not notice that a host has left. Commands wait until the handshakes before them
// are done, because Redis has one thread for both.
type handshakes struct {
	mu    sync.Mutex
	each  time.Duration // of the node's processor
	free  time.Time     // when those that began are done
	begun int
}

func (h *handshakes) begin() (done time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun++
	if now := time.Now(); h.free.Before(now) {
		h.free = now
	}
	h.free = h.free.Add(h.each)
	return time.Until(h.free)
}

// queue is how long the node needs for the handshakes that began.
func (h *handshakes) queue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(time.Until(h.free), 0)
}

// count returns how many handshakes began since the last call.
func (h *handshakes) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.begun
	h.begun = 0
	return n
}

// over returns a node that needs a handshake for each connection.
func (h *handshakes) over(sim *redlocktest.Sim) redlock.Node {
	sim.SetDelay(func() (request, reply time.Duration) { return h.queue() + ms/2, ms / 2 })
	handshake := func(ctx context.Context) error {
		select {
		case <-time.After(h.begin()):
			return nil
		case <-ctx.Done():
			return &redis.LoginError{Connect: ms, Err: ctx.Err()}
		}
	}
	node := sim.Node()
	dial, listen := node.Dial, node.Listen
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		if sim.IsDown() {
			return dial(ctx)
		}
		if err := handshake(ctx); err != nil {
			return nil, err
		}
		return dial(ctx)
	}
	node.Listen = func(ctx context.Context, channel string, heard func(string)) (redlock.Listener, error) {
		if sim.IsDown() {
			return listen(ctx, channel, heard)
		}
		if err := handshake(ctx); err != nil {
			return nil, err
		}
		return listen(ctx, channel, heard)
	}
	return node
}

// A node with TLS restarts, and all hosts of a large fleet connect again. They are back soon after the
// time that the node needs for their handshakes: it does not work for hosts that have left and come
// again. A host that starts meanwhile gets its connection, too.
func TestFleetReconnectsToTLSNode(t *testing.T) {
	for _, c := range []struct {
		key  string
		each time.Duration
	}{
		{"RSA-4096", 6500 * time.Microsecond},
		{"RSA-2048", 1100 * time.Microsecond},
		{"ECDSA P-256", 300 * time.Microsecond},
	} {
		t.Run(c.key, func(t *testing.T) { testFleetReconnects(t, c.each) })
	}
}

func testFleetReconnects(t *testing.T, each time.Duration) {
	oneThread(t)
	hosts := 1000
	if raceEnabled {
		hosts, each = hosts/10, each*10
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		h := &handshakes{}
		node := h.over(f.sims[0])
		var fleet []*redlock.Quorum
		start := func() {
			fleet = append(fleet, f.another(func(o *redlock.Options) { o.Nodes = []redlock.Node{node} }))
		}
		defer func() {
			for _, q := range fleet {
				q.Close()
			}
		}()
		for range hosts {
			start()
		}
		back := func() (lanes, listeners int) {
			for _, q := range fleet {
				n := q.Status().Nodes[0]
				if n.State == redlock.NodeReady {
					lanes++
				}
				if n.Calls {
					listeners++
				}
			}
			return lanes, listeners
		}
		time.Sleep(2 * time.Second)
		if lanes, listeners := back(); lanes != hosts || listeners != hosts {
			t.Fatalf("before the restart %d hosts are connected, %d listen; want %d", lanes, listeners, hosts)
		}
		f.sims[0].Crash(true)
		time.Sleep(2 * time.Second)
		h.mu.Lock()
		h.each = each
		h.mu.Unlock()
		h.count()
		f.sims[0].Restart()
		restarted, total, most, lanesAt := time.Now(), 0, 0, time.Duration(0)
		work := time.Duration(hosts) * each
		for second := 1; ; second++ {
			time.Sleep(time.Second)
			if second == 1 {
				start()
			}
			n := h.count()
			total, most = total+n, max(most, n)
			lanes, listeners := back()
			if lanes == len(fleet) && lanesAt == 0 {
				lanesAt = time.Since(restarted)
			}
			if lanes == len(fleet) && listeners == len(fleet) {
				break
			}
			if second > 300 {
				t.Fatalf("%d of %d hosts are connected after %v, %d listen; the node has done %d handshakes", lanes, hosts, time.Since(restarted), listeners, total)
			}
			t.Logf("%ds: %d handshakes, %d connected, %d listen, queue %v", second, n, lanes, listeners, h.queue())
		}
		t.Logf("work %v: all connected after %v, all listen after %v; %d handshakes, at most %d a second", work, lanesAt, time.Since(restarted), total, most)
		if limit := 4*work + 10*time.Second; lanesAt > limit {
			t.Errorf("all are connected after %v, want at most %v", lanesAt, limit)
		}
		if limit := 6 * hosts; total > limit {
			t.Errorf("%d handshakes for %d hosts, want at most %d", total, hosts, limit)
		}
	})
}
