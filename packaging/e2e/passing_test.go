//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// passLoad has clients that take and release one lock in a loop, so that their daemon passes it
// from one to the next. It checks each grant.
type passLoad struct {
	t       *testing.T
	overlap bool // FORCE is used, so the previous holder may still be working

	stop    chan struct{} // closed when no client may begin another LOCK
	clients sync.WaitGroup

	mu      sync.Mutex    // guards the fields below
	ttl     time.Duration // of each LOCK
	changed chan struct{} // closed and replaced when a client has an answer to LOCK or UNLOCK
	inside  int
	highest int64
	fences  map[int64]bool
	grants  int
	longest time.Duration     // longest wait of a LOCK after since
	since   time.Time         // when forgetLongest was called
	refusal map[string]string // the last refusal of each client, by its name
}

func newPassLoad(t *testing.T, ttl time.Duration) *passLoad {
	return &passLoad{t: t, ttl: ttl, stop: make(chan struct{}), changed: make(chan struct{}), fences: map[int64]bool{}, refusal: map[string]string{}}
}

// change wakes the goroutines that wait. The caller holds mu.
func (l *passLoad) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// forgetLongest restarts the measurement of the longest wait, also for a LOCK that is waiting. Each
// later LOCK has another ttl.
func (l *passLoad) forgetLongest(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest, l.since, l.ttl = 0, time.Now(), ttl
}

// passClient is one client. A daemon that is killed may lose a request or an answer at that
// instant. So the client resends a request that is not answered soon after BACK, with the same id=.
type passClient struct {
	load  *passLoad
	conn  net.Conn
	lines chan string // lines of the daemon; closed at the end of the connection
	name  string      // name and asked make an id= that no other client has
	asked int
}

// add starts n clients of a daemon.
func (l *passLoad) add(h *host, n int) {
	l.t.Helper()
	for i := range n {
		conn, err := net.Dial("unix", h.socket)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { conn.Close() })
		c := &passClient{load: l, conn: conn, lines: make(chan string, 100), name: fmt.Sprint(filepath.Base(h.dir), "-", i)}
		go c.read() // until the end of the test closes the connection
		l.clients.Go(func() {
			for c.takes() {
			}
		})
	}
}

func (c *passClient) read() {
	defer close(c.lines)
	for in := bufio.NewScanner(c.conn); in.Scan(); {
		c.lines <- in.Text()
	}
}

// takes takes and releases the lock, and reports whether the client goes on.
func (c *passClient) takes() bool {
	l := c.load
	select {
	case <-l.stop:
		return false
	default:
	}
	l.mu.Lock()
	floor, ttl := l.highest, l.ttl
	l.mu.Unlock()
	began := time.Now()
	answer := c.ask(fmt.Sprintf("LOCK job ttl=%d id=%s-%d", ttl.Milliseconds(), c.name, c.asked))
	if !strings.HasPrefix(answer, "OK ") {
		return l.refused(c, answer)
	}
	l.granted(answer, floor, began)
	if answer = c.ask("UNLOCK job"); !strings.HasPrefix(answer, "OK ") {
		return l.refused(c, answer)
	}
	return true
}

// ask sends a request and returns its answer.
func (c *passClient) ask(request string) string {
	c.asked++
	tag := fmt.Sprintf("@%d ", c.asked)
	fmt.Fprintln(c.conn, tag+request)
	giveUp := time.After(2 * patience)
	var again <-chan time.Time
	for {
		select {
		case line, open := <-c.lines:
			answer, isOurs := strings.CutPrefix(line, tag)
			switch {
			case !open:
				return request + ": the connection has ended"
			case isOurs && strings.Contains(answer, "is still in use"): // the resend of a request that was not lost
			case isOurs:
				return answer
			case strings.HasPrefix(line, "BACK"):
				again = time.After(forgotten)
			}
		case <-again:
			fmt.Fprintln(c.conn, tag+request)
			again = nil
		case <-giveUp:
			return request + ": no answer"
		}
	}
}

// refused reports whether the client goes on after an answer that is not OK.
func (l *passLoad) refused(c *passClient, answer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.change()
	l.refusal[c.name] = answer
	for _, usual := range []string{"ERR LOST ", "ERR NOTHELD ", "ERR NOQUORUM "} {
		if strings.HasPrefix(answer, usual) {
			return true
		}
	}
	l.t.Errorf("got %s", answer)
	return false
}

// granted checks a grant. floor is the largest fencing token that was known before the LOCK was
// sent. If the deadline has passed when the client reads its OK, it does not use the lock.
func (l *passLoad) granted(answer string, floor int64, began time.Time) {
	fence, deadline := fields(answer)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fences[fence]:
		l.t.Errorf("the fencing token %d was granted twice", fence)
	case fence <= floor:
		l.t.Errorf("the fencing token %d was granted to a LOCK that was sent after %d was known", fence, floor)
	}
	l.fences[fence], l.highest = true, max(l.highest, fence)
	if began.Before(l.since) {
		began = l.since
	}
	l.grants, l.longest = l.grants+1, max(l.longest, time.Since(began))
	l.change()
	if l.overlap || sinceBoot() >= deadline {
		return
	}
	l.inside++
	l.mu.Unlock() // another client may take the lock now
	l.mu.Lock()
	if l.inside != 1 {
		l.t.Errorf("%d clients hold the lock", l.inside)
	}
	l.inside--
}

// more waits for n more grants. Clients that are always refused go on for ever, so it fails after
// some time.
func (l *passLoad) more(n int) {
	l.t.Helper()
	giveUp := time.After(4 * patience)
	before, changed := l.state()
	for grants := before; grants < before+n && !l.t.Failed(); grants, changed = l.state() {
		select {
		case <-changed:
		case <-giveUp:
			l.t.Fatalf("%d of %d grants within %v; %s", grants-before, n, 4*patience, l.refusals())
		}
	}
}

func (l *passLoad) state() (grants int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants, l.changed
}

func (l *passLoad) refusals() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("the last refusal of each client: %q", l.refusal)
}

// end ends the clients. It fails if a LOCK waited until the lock expired.
func (l *passLoad) end() {
	l.t.Helper()
	close(l.stop)
	awaitAll(l.t, 4*patience, &l.clients, "all clients to end", l.refusals)
	if l.longest >= l.ttl {
		l.t.Errorf("a LOCK waited for %v, want less than the ttl of %v: a lock was left behind", l.longest, l.ttl)
	}
	l.t.Logf("%d grants, longest wait %v", l.grants, l.longest)
}

// passes returns how many grants of a daemon asked no node.
func passes(n *terminal) int64 {
	n.t.Helper()
	return number(n.t, n.last("STATUS"), "passes")
}

// last sends a line and returns the last line of the answer.
func (n *terminal) last(request string) string {
	n.t.Helper()
	n.send(request)
	for {
		if line := n.line(); strings.HasPrefix(line, "OK ") {
			return line
		}
	}
}

// awaitWaiters waits until that many clients of a daemon wait.
func awaitWaiters(look *terminal, waiters int64) {
	look.t.Helper()
	waitFor(look.t, fmt.Sprint("clients that wait: ", waiters), func() bool {
		return number(look.t, look.last("STATUS"), "waiters") == waiters
	})
}

// A daemon is killed repeatedly while it passes a lock on. Each fencing token is granted once and
// in order, and no client waits until the lock expires.
func TestKilledWhilePassing(t *testing.T) {
	t.Parallel()
	s := startSuccession(t, 100)
	l := newPassLoad(t, 30*time.Second)
	l.add(s.host, 12)
	look := s.nc()
	look.expect("PING", "OK")
	s.stored(13)
	random := rand.New(rand.NewPCG(1, 2))
	passed := int64(0)
	for range rounds(5, 50) {
		l.more(100 + random.IntN(400))
		passed += passes(look)
		s.succeed(syscall.SIGKILL)
		look.comes("BACK")
	}
	l.more(100)
	l.end()
	if passed == 0 {
		t.Error("no lock was passed on")
	}
	awaitKeys(t, s.cluster.Servers)
}

// FORCE revokes a lock while it is passed on. If a LOCK was sent after a grant was known, its
// fencing token is larger.
func TestForcedWhilePassing(t *testing.T) {
	t.Parallel()
	_, h, _ := five(t)
	l := newPassLoad(t, 30*time.Second)
	l.overlap = true
	l.add(h, 12)
	admin := h.nc()
	for range rounds(10, 200) {
		l.more(200)
		admin.expect("FORCE job", "OK lock=job")
	}
	l.more(200)
	if passes(admin) == 0 {
		t.Error("no lock was passed on")
	}
	l.end()
}

// A daemon is stopped while it passes a lock on: for longer than the window of passing, and for
// longer than the lock lives. Clients of another host take the lock meanwhile. No two clients hold
// it at once.
func TestStoppedWhilePassing(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{60 * time.Millisecond, 3 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			cluster, here, d := five(t)
			there := newHost(t, cluster)
			there.serve()
			l := newPassLoad(t, time.Second)
			l.add(here, 8)
			l.add(there, 4)
			look := here.nc()
			for range rounds(2, 30) {
				l.more(300)
				d.signal(syscall.SIGSTOP)
				stands := time.After(pause)
				if pause > l.ttl {
					l.more(50) // of the other host, once the lock has expired
				}
				<-stands
				d.signal(syscall.SIGCONT)
			}
			l.more(300)
			if passes(look) == 0 {
				t.Error("no lock was passed on")
			}
			l.forgetLongest(30 * time.Second) // the clients of a stopped daemon wait; and no queue takes as long
			l.more(300)
			l.end()
		})
	}
}

// While a lock is passed on, one node after the other hangs, or restarts without its data. No two
// clients hold the lock at once, each fencing token is granted once and in order, and no client
// waits until the lock expires.
func TestNodesFailWhilePassing(t *testing.T) {
	t.Parallel()
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	const ttl = 20 * time.Second // longer than a busy machine delays a client
	maxTTL := fmt.Sprintf("max_ttl = %q", ttl.String())
	here, there := newHost(t, cluster, maxTTL), newHost(t, cluster, maxTTL)
	here.serve()
	there.serve()
	l := newPassLoad(t, ttl)
	l.add(here, 8)
	l.add(there, 4)
	look := here.nc()
	done := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds(4, 40) {
		server := cluster.Servers[i%5]
		l.more(200)
		if i >= 3 { // so that three nodes vote
			earlier := cluster.Servers[(i-3)%5].Name()
			waitFor(t, "the node votes again", func() bool { return field(nodeLine(look, earlier), "state") == "ready" })
		}
		if i%2 == 0 {
			done(server.Stop())
			l.more(200)
			done(server.Cont())
			continue
		}
		server.Kill()
		l.more(200)
		done(server.Restart())
	}
	l.more(200)
	if passes(look) == 0 {
		t.Error("no lock was passed on")
	}
	l.end()
	awaitKeys(t, cluster.Servers)
}
