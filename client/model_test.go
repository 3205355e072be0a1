package client

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// model is a daemon with locks, but without nodes or time, for tests of load and races. It grants a
// name in the order of the requests.
type model struct {
	t        testing.TB
	listener net.Listener
	path     string
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	names  map[string]*modelLock
	leases map[string]string // id to name
	count  int
	conns  map[net.Conn]bool

	backs int // 1 in backs writes loses its answers and sends BACK, as a restart does; 0: none
}

type modelLock struct {
	lease   string // empty if the lock is free
	id      string // id= of the LOCK that holds it
	waiters []waiter
}

type waiter struct {
	tag, id string
	out     *modelOut
}

// modelOut collects the replies to a connection. A grant to a waiter is written together with the
// reply to UNLOCK, so the model supports waiters on the same connection only.
type modelOut struct{ buf []byte }

func startModel(t testing.TB) *model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, listener: l, path: path, names: make(map[string]*modelLock), leases: make(map[string]string), conns: make(map[net.Conn]bool)}
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
	m.restart()
	m.wg.Wait()
}

// restart ends all connections. Leases stay and can be resumed. Waiters are forgotten.
func (m *model) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.conns {
		conn.Close()
	}
	clear(m.conns)
	for _, l := range m.names {
		l.waiters = nil
	}
}

// back simulates a restart that keeps the connection and loses the last answers.
func (m *model) back(out *modelOut) {
	if m.backs == 0 || rand.IntN(m.backs) > 0 {
		return
	}
	lines := bytes.SplitAfter(out.buf, []byte("\n"))
	out.buf = append(bytes.Join(lines[:rand.IntN(len(lines))], nil), "BACK\n"...)
}

func (m *model) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns[conn] = true
		m.mu.Unlock()
		m.wg.Go(func() { m.serve(conn) })
	}
}

// serve answers in one write everything that is buffered.
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
		if m.conns[conn] {
			m.handle(&req, &out)
		}
		m.mu.Unlock()
		if in.Buffered() > 0 {
			continue
		}
		m.back(&out)
		if _, err := conn.Write(out.buf); err != nil {
			return
		}
		out.buf = out.buf[:0]
	}
}

// handle answers a request. The caller holds mu.
func (m *model) handle(req *ipc.Request, out *modelOut) {
	switch req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		m.lock(req, out)
	case ipc.VerbUnlock:
		m.unlock(req, out)
	case ipc.VerbResume:
		m.resume(req, out)
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
	again := l.lease != "" && l.id == req.ID
	waits := slices.ContainsFunc(l.waiters, func(w waiter) bool { return w.id == req.ID })
	switch {
	case again:
		out.grant(req.Tag, name, l.lease, m.count)
	case l.lease == "":
		m.grant(name, l, waiter{req.Tag, req.ID, out})
	case !waits && (req.Verb == ipc.VerbTry || req.Has(ipc.OptWait) && req.Wait == 0):
		out.reply(req.Tag, "ERR HELD")
	default:
		l.waiters = append(l.waiters, waiter{req.Tag, req.ID, out})
	}
}

func (m *model) grant(name string, l *modelLock, w waiter) {
	m.count++
	l.lease = "L" + strconv.Itoa(m.count)
	m.leases[l.lease] = name
	l.id = w.id
	w.out.grant(w.tag, name, l.lease, m.count)
	for _, other := range l.waiters {
		if other.id == w.id { // the same LOCK, resent
			other.out.grant(other.tag, name, l.lease, m.count)
		}
	}
	l.waiters = slices.DeleteFunc(l.waiters, func(other waiter) bool { return other.id == w.id })
}

func (m *model) resume(req *ipc.Request, out *modelOut) {
	if m.leases[req.Lease] != req.Names[0] {
		out.reply(req.Tag, "ERR NOTHELD")
		return
	}
	out.grant(req.Tag, req.Names[0], req.Lease, m.count)
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
				w.out.reply(tag, "ERR CANCELLED")
				out.reply("", "OK")
				return
			}
		}
	}
	out.reply("", "ERR NOTHELD")
}

// left returns the number of leases and of waiters.
func (m *model) left() (leases, waiters int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.names {
		waiters += len(l.waiters)
	}
	return len(m.leases), waiters
}

func (o *modelOut) grant(tag, name, lease string, fence int) {
	o.reply(tag, "OK lock="+name+" lease="+lease+" fence="+strconv.Itoa(fence)+" ttl=10000 deadline="+
		strconv.FormatInt((boottime.Exact()+10*time.Second).Milliseconds(), 10))
}

func (o *modelOut) reply(tag, rest string) {
	if tag != "" {
		o.buf = append(append(append(o.buf, '@'), tag...), ' ')
	}
	o.buf = append(append(o.buf, rest...), '\n')
}

// mustBecomeEmpty waits until no lock is held and no client waits. Each answer may cause the next
// request.
func (m *model) mustBecomeEmpty(c *Client) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	for {
		leases, waiters := m.left()
		empty := leases == 0 && waiters == 0 && c.busy(roomLock) == 0 && c.busy(roomOther) == 0
		if err := c.Ping(ctx); err != nil {
			m.t.Fatalf("%d leases and %d waiters are left with the daemon: %v", leases, waiters, err)
		}
		if empty { // and the client has read all answers before the one to PING
			return
		}
	}
}
