package session

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/systemd"
)

// succession runs daemons one after the other in this process. They share the embedded nodes, the
// state file, and the connections that a service manager would store.
type succession struct {
	t     *testing.T
	path  string
	nodes []redlock.Node
	log   daemontest.Log

	d           *Host // the present daemon
	server      *server.Server
	opened      chan *session
	ends        map[*wire]*end
	nodeTimeout time.Duration // 0: the default

	partial bool                   // the next daemon finds only a part of the records
	found   func(*state.Recovered) // called by the next daemon before it restores what it has found; may be nil
}

// end is the daemon's end of a connection.
type end struct {
	number uint64
	file   *os.File // the service manager's descriptor
}

func newSuccession(t *testing.T) *succession {
	t.Helper()
	return newSuccessionWith(t, 0)
}

// newSuccessionWith sets how long the daemons wait for a node's answer.
func newSuccessionWith(t *testing.T, nodeTimeout time.Duration) *succession {
	t.Helper()
	cfg := config.Dev()
	_, nodes, err := devnodes.Start(&cfg.Quorum) // not closed: a frozen daemon may still dial
	if err != nil {
		t.Fatal(err)
	}
	s := &succession{t: t, path: filepath.Join(daemontest.ShortDir(t), "s"), nodes: nodes, opened: make(chan *session, 1), ends: map[*wire]*end{}, nodeTimeout: nodeTimeout}
	s.start()
	t.Cleanup(s.end)
	return s
}

// start starts a daemon that is handed the connections of these clients, and the mark.
func (s *succession) start(of ...*wire) {
	s.t.Helper()
	var stored []systemd.StoredConn
	for _, w := range of {
		nc, err := net.FileConn(s.ends[w].file)
		if err != nil {
			s.t.Fatal(err)
		}
		stored = append(stored, systemd.StoredConn{Name: state.ConnName(s.ends[w].number), Conn: nc.(*net.UnixConn)})
	}
	s.startWith(state.Inherited{Conns: stored, Marked: true})
}

func (s *succession) startWith(stored state.Inherited) {
	s.t.Helper()
	cfg := config.Dev()
	cfg.Quorum.NodeTimeout = cmp.Or(s.nodeTimeout, cfg.Quorum.NodeTimeout)
	d, err := newTestHost(cfg, logging.New(io.MultiWriter(&s.log, daemontest.Defects{T: s.t}), hclog.Info, logging.Text), s.nodes, true)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := d.Processes.Watch(); err != nil {
		s.t.Fatal(err)
	}
	d.Nodes.Settle(s.t.Context())
	s.d, s.server = d, d.NewServer()
	p := d.Journal.Open(d.journalOptions(s.path))
	p.Complete = p.Complete && !s.partial
	d.Store = d.storeOf(100)
	if s.found != nil {
		s.found(p)
	}
	r := restoration{d: d, server: s.server, recovered: p, marked: stored.Marked, conns: map[uint64]*restoredConn{}}
	r.run(stored.Conns)
	s.server.Open = func(conn *server.Conn) (server.Session, error) {
		opened, err := d.open(conn)
		s.opened <- opened.(*session)
		return opened, err
	}
}

// nodesMayFail makes the nodes of the next daemons fail while down is set.
func (s *succession) nodesMayFail() (down *atomic.Bool) {
	down = new(atomic.Bool)
	for i := range s.nodes {
		dial := s.nodes[i].Dial
		s.nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			conn, err := dial(ctx)
			return redlocktest.WithDo(conn, failing{conn, down}.Do), err
		}
	}
	return down
}

// failing is a connection to a node that fails while down is set.
type failing struct {
	redlock.Conn
	down *atomic.Bool
}

func (c failing) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	if c.down.Load() {
		return net.ErrClosed
	}
	return c.Conn.Do(ctx, group, replies)
}

// startWithoutFiles starts a daemon that cannot look up processes while it restores.
func (s *succession) startWithoutFiles(of ...*wire) {
	s.t.Helper()
	var restore func()
	s.found = func(*state.Recovered) { restore = allowNoFiles(s.t) }
	s.start(of...)
	restore()
}

// end freezes the daemon, as SIGTERM does. From then on, a write to the journal blocks for ever,
// even one that Close waits for.
func (s *succession) end() {
	s.d.Freeze(s.server)
	go s.d.Nodes.Close()
}

// dial connects a client. The service manager stores the connection.
func (s *succession) dial() *wire {
	s.t.Helper()
	w, session := s.dialUnstored()
	s.d.Store.AddStored(&session.stored)
	s.d.Journal.ConnOpened(session.number, true)
	return w
}

// dialUnstored connects a client. The service manager does not store the connection.
func (s *succession) dialUnstored() (*wire, *session) {
	s.t.Helper()
	ours, theirs, err := devnodes.SocketPair()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { ours.Close() })
	file, err := theirs.(*net.UnixConn).File()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { file.Close() })
	w := &wire{daemontest.NewWire(s.t, ours.(*net.UnixConn))}
	go s.server.ServeConn(theirs)
	session := <-s.opened
	s.ends[w] = &end{number: session.number, file: file}
	return w, session
}

// connManager is a service manager that stores up to capacity connections. It sends their names to
// stored.
type connManager struct {
	capacity int
	stored   chan string // may be nil
}

func (m connManager) StoreMax() int { return m.capacity + 1 }

func (m connManager) Store(name string, _ syscall.RawConn) error {
	if m.stored != nil {
		m.stored <- name
	}
	return nil
}

func (connManager) Unstore(string) error { return nil }

// storeOf returns a store of capacity connections, which stores none by itself.
func (d *Host) storeOf(capacity int) *state.ConnStore {
	return state.NewConnStore(state.ConnStoreOptions{
		Manager: connManager{capacity: capacity}, Journal: d.Journal, Log: d.Log, Clock: d.Clock, Marked: true, Failed: d.LogManagerError,
	})
}
