// Package daemon is what a host needs around the locks: the configuration, a
// session for each connection, the local wait list, limits and status. It joins
// the protocol (ipc) and the algorithm (redlock), which know nothing of each
// other.
//
// A LOCK is read downward like this: ipc.Server reads a line and calls
// session.Begin, one switch over verbs; session.lock checks options and limits
// and joins the queue; ask.Run waits for its turn and asks Quorum.Acquire; the
// lease is kept by redlock from then on, and given back by session.Close when
// the connection ends.
package daemon

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// daemon is what all connections share.
type daemon struct {
	cfg    *Config
	log    hclog.Logger
	clock  func() time.Duration
	host   string
	nodes  *redlock.Quorum
	queue  *queue
	leases *registry
	limits *limits
	users  users

	stopping atomic.Bool // nothing is given back any more
}

func newDaemon(cfg *Config, log hclog.Logger, nodes []redlock.Node) (*daemon, error) {
	d := &daemon{
		cfg:    cfg,
		log:    log,
		clock:  redlock.BootTime,
		queue:  newQueue(),
		leases: newRegistry(),
		limits: newLimits(cfg.Limits),
	}
	var err error
	if d.host, err = os.Hostname(); err != nil {
		d.host = "?"
	}
	d.nodes, err = redlock.New(redlock.Options{
		Nodes:       nodes,
		Prefix:      cfg.Quorum.KeyPrefix,
		NodeTimeout: cfg.Quorum.NodeTimeout,
		MaxTTL:      cfg.Quorum.MaxTTL,
		Observe:     d.observe(),
	})
	return d, err
}

// observe logs what happens to nodes, once for each change, and once when the
// quorum is had, or is lost.
func (d *daemon) observe() func(redlock.NodeStatus) {
	var mu sync.Mutex // guards states
	states := map[string]redlock.NodeState{}
	return func(s redlock.NodeStatus) {
		mu.Lock()
		before := states[s.Name]
		states[s.Name] = s.State
		mu.Unlock()
		switch {
		case d.stopping.Load(): // it is we who hang up
		case s.State == redlock.NodeReady:
			d.log.Info("node is ready", "node", s.Name, "address", s.Address)
		case before != s.State:
			d.log.Warn("node is down", "node", s.Name, "address", s.Address, "reason", s.Reason)
		default:
			d.log.Debug("node is still down", "node", s.Name, "address", s.Address, "reason", s.Reason)
		}
	}
}

// maxOutput is what a client may leave unread: more than the longest LIST.
const maxOutput = 16 << 20

func (d *daemon) newServer() *ipc.Server {
	return &ipc.Server{
		Open:      d.open,
		MaxOutput: maxOutput,
		Defect: func(c *ipc.Conn, what any, stack []byte) {
			d.log.Error("a defect in redlockd: please report it", "defect", what, "pid", c.Peer().PID, "stack", string(stack))
		},
		Dropped: func(c *ipc.Conn, why error) {
			d.log.Warn("connection cut", "reason", why, "pid", c.Peer().PID, "uid", c.Peer().UID)
		},
		AcceptFailed: func(err error, pause time.Duration) {
			d.log.Error("no connection can be accepted", "error", err, "next try in", pause)
		},
	}
}

// open makes the session of a new connection, or says why there is none.
func (d *daemon) open(conn *ipc.Conn) (ipc.Session, error) {
	s := &session{d: d, conn: conn, uid: unknownUser, inputEnded: make(chan struct{})}
	if peer := conn.Peer(); peer.Known {
		s.uid, s.pid = int(peer.UID), peer.PID
	}
	if err := d.limits.connect(s.uid); err != nil {
		return nil, &ipc.Error{Code: codeOf(err), Text: err.Error()}
	}
	s.user = d.users.name(s.uid)
	return s, nil
}
