// Package daemon is what a host needs around the locks: the configuration, a
// session for each connection, access rules, the local wait list, limits and status. It joins
// the protocol (ipc) and the algorithm (redlock), which know nothing of each
// other.
//
// A LOCK is read downward like this: server.Server reads a line and calls
// session.Begin: rights, then one switch over verbs; session.lock checks options and limits
// and joins the queue; ask.Run waits for its turn and asks Quorum.Acquire; the
// lease is kept by redlock from then on, and given back by session.Close when
// the connection ends.
//
// What must outlast the process is noted before anybody outside can know of it (package
// state, in a file beside the socket), and connections are left with the service
// manager (state.ConnStore). The next daemon begins where the notes end (restoration): leases
// go on, requests that were not answered are begun again in their order, and clients
// notice a pause. So there is one way to end, whether it is SIGTERM or SIGKILL: it is
// frozen, and the process ends. Without a service manager that keeps connections they
// end with BYE, and clients RESUME their leases on new ones.
//
// Mutexes are held for moments, around fields, and not together, but for this: the
// store's before a desk's or a session's, the queue's before a holding's, both a desk's and
// the queue's before a lease's (Lease.Err), and that before a lane's, within redlock.
package daemon

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// daemon is what all connections share.
type daemon struct {
	cfg      *config.Config
	log      hclog.Logger
	clock    func() time.Duration
	host     string
	nodes    *redlock.Quorum
	queue    *waitqueue.Queue
	leases   *registry
	limits   *access.Limits
	access   atomic.Pointer[config.Access] // nil: whoever can connect may lock anything
	users    access.Users
	recorder *metrics.Recorder // of events, for Prometheus; nil: metrics are off

	quorate quorate // nodes, as the log has them

	certificates *certificates // of the nodes that have TLS

	processes *processes // that hold leases (hold=pid)

	orphans orphans
	journal *state.Journal   // of what outlasts the process; it is not open with embedded nodes
	owed    atomic.Int32     // releases that are noted and of which a quorum has heard: see maxOwed
	store   *state.ConnStore // connections that outlast the process; nil: none

	restoring uint64 // the number of the connection that is being restored; 0: none. Nothing else is opened then

	acceptLogged seldom      // that no connection could be accepted
	acceptFails  atomic.Bool // it was logged, and not yet that it is over
	deniedLogged seldom      // that FORCE or ADMIT was denied
	lossLog      lossLog     // which leases were lost

	stopping atomic.Bool // nothing is given back any more
	frozen   atomic.Bool // nothing at all is done any more
}

func newDaemon(cfg *config.Config, log hclog.Logger, nodes []redlock.Node, dev bool) (*daemon, error) {
	d := &daemon{
		cfg:    cfg,
		log:    log,
		clock:  redlock.BootTime,
		queue:  waitqueue.New(),
		leases: newRegistry(),
		limits: access.NewLimits(cfg.Limits),

		journal: state.NewJournal(log),

		certificates: newCertificates(cfg, log),
	}
	d.access.Store(cfg.Access)
	if cfg.Metrics != nil {
		d.recorder = metrics.NewRecorder(nodeNames(cfg))
	}
	var err error
	d.processes = newProcesses(d.processEnded)
	if d.host, err = os.Hostname(); err != nil {
		d.host = "?"
	}
	d.nodes, err = redlock.New(redlock.Options{
		Nodes:       nodes,
		Prefix:      cfg.Quorum.KeyPrefix,
		NodeTimeout: cfg.Quorum.NodeTimeout,
		MaxTTL:      cfg.Quorum.MaxTTL,
		Observe:     d.observe(),
		Notice:      d.notice,
		RoundTrip:   d.recorder.RoundTrip,
		Extended:    d.recorder.Extended,
		Moved:       d.moved,
		Aged:        d.aged,

		NoQuarantine: dev, // embedded nodes live and die with this process
	})
	return d, err
}

// nodesStatus is what is known of the nodes, and of what keeps them connected.
func (d *daemon) nodesStatus() redlock.Status {
	status := d.nodes.Status()
	d.certificates.warn(status.Nodes)
	return status
}

// notice logs what whoever runs the nodes must know.
func (d *daemon) notice(n redlock.Notice) {
	switch n.Kind {
	case redlock.HostClockJumped:
		d.log.Error("this host's clock stood still, or all nodes' clocks were stepped", "reason", n.Text)
	case redlock.CountersLost:
		d.log.Warn("fencing counters began anew", "reason", n.Text)
	default:
		d.log.Error("node's admission withdrawn: it is in quarantine again", "node", n.Node, "kind", n.Kind, "reason", n.Text)
	}
}

// moved notes the new deadline of a lease. Before it is registered, what is noted
// of its grant says it.
func (d *daemon) moved(l *redlock.Lease) {
	if h := d.leases.get(l.ID()); h != nil {
		d.journal.Deadline(h.number, h.lease)
	}
}

// aged notes the deadlines of all leases: they are nearer than they were.
func (d *daemon) aged() {
	for _, h := range d.leases.all() {
		d.journal.Deadline(h.number, h.lease)
	}
}

// number gives a connection its number, under which it is noted and stored.
func (d *daemon) number(s *session) {
	if d.restoring != 0 {
		s.number = d.restoring
		s.stored.Init(s, s.number, s.opened)
		d.store.AddStored(&s.stored)
		return
	}
	s.number = d.journal.NextNumber()
	s.stored.Init(s, s.number, s.opened)
	d.journal.ConnOpened(s.number, false)
	d.store.Add(&s.stored)
}

// Bounds of a connection, in bytes. One user may have a thousand of them.
const (
	maxQueued = 16 << 10 // that were read and wait for their turn, which are in the table as well
	maxOutput = 16 << 20 // that a client leaves unread: more than the longest LIST
)

func (d *daemon) newServer() *server.Server {
	return &server.Server{
		Admit:     d.admits,
		Dismissed: func(peer server.Peer) { d.limits.DismissConnection(requesterOf(peer).UID) },
		Open:      d.open,
		MaxQueued: maxQueued,
		MaxOutput: maxOutput,
		Defect: func(c *server.Conn, what any, stack []byte) {
			d.log.Error("a defect in redlockd: please report it", "defect", what, "pid", c.Peer().PID, "stack", string(stack))
		},
		Refused:  d.recorder.Refused,
		HeldBack: d.recorder.HeldBack,
		Bye:      byeLate,
		Answered: d.answered,
		Dropped: func(c *server.Conn, why error) {
			d.unkept(c)
			d.log.Warn("connection cut", "reason", why, "pid", c.Peer().PID, "uid", c.Peer().UID)
		},
		AcceptFailed: d.acceptFailed,
	}
}

// unkept notes that a connection is cut by us: its client may be at work, and does
// not know yet. The next daemon must not take it for one that is gone.
func (d *daemon) unkept(c *server.Conn) {
	if s, ok := c.Session().(*session); ok && s.stored.NeverStore() {
		d.journal.ConnOpened(s.number, false)
	}
}

// admits says whether a connection is one too many.
func (d *daemon) admits(peer server.Peer) error {
	uid := requesterOf(peer).UID
	err := d.limits.AdmitConnection(uid)
	if err == nil {
		if err = d.hasRoom(); err != nil {
			d.limits.DismissConnection(uid)
		}
	}
	if err != nil {
		return &ipc.Error{Code: codeOf(err), Text: err.Error()}
	}
	return nil
}

// hasRoom says of a connection that the limits allow whether the system does.
func (d *daemon) hasRoom() error {
	err := d.mayTakeDescriptor()
	if err != nil {
		d.acceptFailed(err, 0)
		return shortage(err)
	}
	d.accepts()
	return nil
}

// open makes the session of a new connection, which was admitted.
func (d *daemon) open(conn *server.Conn) (server.Session, error) {
	peer := conn.Peer()
	s := &session{d: d, conn: conn, requester: requesterOf(peer), pid: peer.PID, opened: d.clock(), inputEnded: make(chan struct{})}
	s.uid = s.requester.UID
	s.listing = d.limits.Connect(s.uid, conn, d.restoring != 0)
	s.user = d.users.Name(s.uid)
	s.requester.User = s.user
	d.number(s)
	return s, nil
}
