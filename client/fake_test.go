package client

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// scripted is a daemon that says what the test tells it to, and nothing else.
type scripted struct {
	t     testing.TB
	conn  net.Conn // the last that was taken
	in    *bufio.Reader
	start time.Time
	slept atomic.Int64  // nanoseconds for which the host was suspended
	dials chan net.Conn // connections that were not taken yet
	down  atomic.Bool   // nobody listens
	tries atomic.Int32  // to connect, when nobody listened
}

// dialScripted connects a Client to a scripted daemon over a net.Pipe, for synctest.
func dialScripted(t testing.TB, opts ...DialOption) (*Client, *scripted) {
	t.Helper()
	c, d := newScripted(t)
	for _, opt := range opts {
		opt(c)
	}
	opened := async(func() (int, error) { return 0, c.open(t.Context()) })
	d.greet()
	opened.must(t)
	t.Cleanup(func() {
		d.conn.Close()
		c.Close()
	})
	return c, d
}

func newScripted(t testing.TB) (*Client, *scripted) {
	d := &scripted{t: t, start: time.Now(), dials: make(chan net.Conn, 100)}
	c := newClient(d.dial, d.boottime)
	c.word = "t."
	return c, d
}

var errNobody = fmt.Errorf("%w: nobody listens", ErrUnavailable)

func (d *scripted) dial(context.Context) (net.Conn, error) {
	if d.down.Load() {
		d.tries.Add(1)
		return nil, errNobody
	}
	ours, theirs := net.Pipe()
	d.dials <- theirs
	return ours, nil
}

// accept takes the next connection.
func (d *scripted) accept() {
	d.conn = <-d.dials
	d.in = bufio.NewReader(d.conn)
}

// greet takes the next connection, and answers HELLO.
func (d *scripted) greet() {
	d.t.Helper()
	d.accept()
	d.expect("@0 HELLO 1")
	d.say("@0 OK version=1")
}

// hangUp ends the connection, as a daemon does that is killed. It returns when
// the client has noticed.
func (d *scripted) hangUp() {
	d.conn.Close()
	synctest.Wait()
}

// stop is hangUp, and nobody listens from then on.
func (d *scripted) stop() {
	d.down.Store(true)
	d.hangUp()
}

// boottime is the clock of the client: it started with the test.
func (d *scripted) boottime() time.Duration {
	return bootAt + d.elapsed() + time.Duration(d.slept.Load())
}

func (d *scripted) elapsed() time.Duration { return time.Since(d.start) }

// at checks that now is so long after the test's beginning.
func (d *scripted) at(what string, want time.Duration) {
	d.t.Helper()
	if got := d.elapsed(); got != want {
		d.t.Errorf("%s at %v, want %v", what, got, want)
	}
}

// lock takes a lock, with ttl=10s, that is granted at once for 10 s.
func (d *scripted) lock(c *Client, name, lease string, opts ...Option) *Lease {
	d.t.Helper()
	locked := async(func() (*Lease, error) {
		return c.Lock(d.t.Context(), name, append(opts, WithTTL(10*time.Second))...)
	})
	tag, _, _ := strings.Cut(d.line(), " ")
	d.say(grant(tag[1:], name, lease, d.elapsed(), 10*time.Second))
	return locked.must(d.t)
}

// bootAt is what the clock of a scripted test shows at its beginning.
const bootAt = 1000 * time.Second

// expect reads the next line, which must be want.
func (d *scripted) expect(want string) {
	d.t.Helper()
	if got := d.line(); got != want+"\n" {
		d.t.Errorf("the daemon read %q, want %q", got, want)
	}
}

// expectTagged reads the next line, which must be want with whatever tag, and
// returns the tag with its @.
func (d *scripted) expectTagged(want string) string {
	d.t.Helper()
	tag, got, _ := strings.Cut(d.line(), " ")
	if got != want+"\n" {
		d.t.Errorf("the daemon read %q after the tag %s, want %q", got, tag, want)
	}
	return tag
}

// tagged reads the next line: its tag, without the @, and the rest.
func (d *scripted) tagged() (tag, rest string) {
	tag, rest, _ = strings.Cut(strings.TrimSuffix(d.line(), "\n"), " ")
	return strings.TrimPrefix(tag, "@"), rest
}

// ms is a duration as requests have it.
func ms(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// line is "" where the connection has ended.
func (d *scripted) line() string {
	line, _ := d.in.ReadString('\n')
	return line
}

// say writes lines, all of them at once.
func (d *scripted) say(lines ...string) {
	d.t.Helper()
	var all []byte
	for _, line := range lines {
		all = append(all, line+"\n"...)
	}
	if _, err := d.conn.Write(all); err != nil {
		d.t.Errorf("the daemon says %q: %v", lines, err)
	}
}

// grant is an OK to the LOCK with a tag, for a lease that is valid for so long
// from the test's beginning on.
func grant(tag, name, lease string, after, left time.Duration) string {
	return fmt.Sprintf("@%s OK lock=%s lease=%s fence=77 ttl=%d deadline=%d", tag, name, lease,
		left.Milliseconds(), (bootAt + after + left).Milliseconds())
}

// model is a daemon that knows locks, and nothing of nodes or time: for load
// and for races, on one connection. Names are held first come, first served.
type model struct {
	t        testing.TB
	listener net.Listener
	path     string
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	names  map[string]*modelLock
	leases map[string]string // id to name
	count  int
	conns  []net.Conn
}

type modelLock struct {
	lease   string // "": free
	waiters []waiter
}

type waiter struct {
	tag string
	out *modelOut
}

// modelOut collects the replies to a connection. A grant to a waiter goes out
// with the reply to who unlocked: they must share the connection.
type modelOut struct{ buf []byte }

func startModel(t testing.TB) *model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, listener: l, path: path, names: make(map[string]*modelLock), leases: make(map[string]string)}
	m.wg.Go(m.accept)
	t.Cleanup(m.stop)
	return m
}

func (m *model) dial() *Client {
	m.t.Helper()
	c, err := Dial(m.t.Context(), m.path)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	return c
}

func (m *model) stop() {
	m.listener.Close()
	m.mu.Lock()
	for _, conn := range m.conns {
		conn.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
}

func (m *model) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		m.wg.Go(func() { m.serve(conn) })
	}
}

// serve answers all that is buffered in one write.
func (m *model) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	var out modelOut
	var req ipc.Request
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if err := ipc.ParseRequest(line[:len(line)-1], &req); err != nil {
			m.t.Errorf("the model read %q: %v", line, err)
			return
		}
		m.mu.Lock()
		m.handle(&req, &out)
		m.mu.Unlock()
		if in.Buffered() > 0 {
			continue
		}
		if _, err := conn.Write(out.buf); err != nil {
			return
		}
		out.buf = out.buf[:0]
	}
}

// handle needs mu.
func (m *model) handle(req *ipc.Request, out *modelOut) {
	switch req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		m.lock(req, out)
	case ipc.VerbUnlock:
		m.unlock(req, out)
	case ipc.VerbCancel:
		m.cancel(req.Words[0], out)
	default:
		out.reply(req.Tag, "OK")
	}
}

func (m *model) lock(req *ipc.Request, out *modelOut) {
	name := req.Names[0]
	l := m.names[name]
	if l == nil {
		l = &modelLock{}
		m.names[name] = l
	}
	switch {
	case l.lease == "":
		m.grant(name, l, waiter{req.Tag, out})
	case req.Verb == ipc.VerbTry:
		out.reply(req.Tag, "ERR HELD")
	default:
		l.waiters = append(l.waiters, waiter{req.Tag, out})
	}
}

func (m *model) grant(name string, l *modelLock, w waiter) {
	m.count++
	l.lease = "L" + strconv.Itoa(m.count)
	m.leases[l.lease] = name
	w.out.reply(w.tag, "OK lock="+name+" lease="+l.lease+" fence="+strconv.Itoa(m.count)+" ttl=10000 deadline="+
		strconv.FormatInt((boottime()+10*time.Second).Milliseconds(), 10))
}

func (m *model) unlock(req *ipc.Request, out *modelOut) {
	name, ok := m.leases[req.Lease]
	if !ok {
		out.reply(req.Tag, "ERR NOTHELD")
		return
	}
	delete(m.leases, req.Lease)
	out.reply(req.Tag, "OK lock="+name)
	l := m.names[name]
	l.lease = ""
	if len(l.waiters) > 0 {
		next := l.waiters[0]
		l.waiters = l.waiters[1:]
		m.grant(name, l, next)
	}
}

func (m *model) cancel(tag string, out *modelOut) {
	for _, l := range m.names {
		for i, w := range l.waiters {
			if w.tag == tag {
				l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
				out.reply(tag, "ERR CANCELLED")
				out.reply("", "OK")
				return
			}
		}
	}
	out.reply("", "ERR NOTHELD")
}

// left is how many leases and waiters there are.
func (m *model) left() (leases, waiters int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.names {
		waiters += len(l.waiters)
	}
	return len(m.leases), waiters
}

func (o *modelOut) reply(tag, rest string) {
	if tag != "" {
		o.buf = append(append(append(o.buf, '@'), tag...), ' ')
	}
	o.buf = append(append(o.buf, rest...), '\n')
}

// mustBecomeEmpty waits until nothing is held, and nothing waits. Each answer
// is a step towards that.
func (m *model) mustBecomeEmpty(c *Client) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	for {
		leases, waiters := m.left()
		empty := leases == 0 && waiters == 0 && len(c.calls.lockPlaces) == 0
		if err := c.Ping(ctx); err != nil {
			m.t.Fatalf("%d leases and %d waiters are left with the daemon: %v", leases, waiters, err)
		}
		if empty { // and all answers before that to PING have been taken
			return
		}
	}
}
