package session

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// Bounds of a connection, in bytes. One user may have a thousand of them.
const (
	maxQueued = 16 << 10 // requests that were read and have not begun; the state file has them as well
	maxOutput = 16 << 20 // answers that the client has not read: more than the longest LIST
)

func (d *Host) NewServer() *server.Server {
	return &server.Server{
		Admit:     d.admitConnection,
		Dismissed: func(peer server.Peer) { d.Limits.DismissConnection(requesterOf(peer).UID) },
		Open:      d.open,
		MaxQueued: maxQueued,
		MaxOutput: maxOutput,
		Defect: func(c *server.Conn, what any, stack []byte) {
			d.Log.Error("a defect in redlockd: please report it", "defect", what, "pid", c.Peer().PID, "stack", string(stack))
		},
		Refused:  d.recorder.Refused,
		HeldBack: d.recorder.HeldBack,
		Bye:      byeLate,
		Answered: d.traceAnswer,
		Dropped: func(c *server.Conn, why error) {
			// The client may still work, and may not know of the cut yet. The next daemon must not assume
			// that it has ended.
			if s, ok := c.Session().(*session); ok && s.stored.NeverStore() {
				d.Journal.ConnOpened(s.number, false)
			}
			d.Log.Warn("connection cut", "reason", why, "pid", c.Peer().PID, "uid", c.Peer().UID)
		},
		AcceptFailed: d.acceptFailed,
	}
}

// admitConnection returns an error if a connection exceeds a limit, or if the system has too few
// descriptors for it.
func (d *Host) admitConnection(peer server.Peer) error {
	uid := requesterOf(peer).UID
	err := d.Limits.AdmitConnection(uid)
	if err == nil {
		if err = d.checkDescriptorsLeft(); err == nil {
			d.noteAccepting()
			return nil
		}
		d.acceptFailed(err, 0)
		d.Limits.DismissConnection(uid)
		err = shortageError(err)
	}
	return &ipc.Error{Code: codeOf(err), Text: err.Error()}
}

// open makes the session of a new connection, which was admitted.
func (d *Host) open(conn *server.Conn) (server.Session, error) {
	peer := conn.Peer()
	s := &session{host: d, conn: conn, requester: requesterOf(peer), pid: peer.PID, opened: d.Clock(), inputEnded: make(chan struct{})}
	s.uid, s.client.Of = s.requester.UID, s
	s.listing = d.Limits.Connect(s.uid, conn, d.restoring != 0)
	s.user = d.users.Name(s.uid)
	s.requester.User = s.user
	d.recordConnection(s)
	return s, nil
}

// traceAnswer implements server.Server's callback for answers to requests that sessions began.
func (d *Host) traceAnswer(conn *server.Conn, call *server.Call, r *ipc.Response) {
	if !d.Log.IsTrace() {
		return
	}
	result := "OK"
	if r.Kind == ipc.KindErr {
		result = string(r.Code)
	}
	if s, ok := conn.Session().(*session); ok {
		d.Log.Trace("answer", append(s.requestFacts(call), "result", result)...)
	}
}

// acceptPause is the shortest time between two log lines that no connection can be accepted.
// Otherwise clients that reconnect continuously could fill the log.
const acceptPause = time.Minute

// acceptFailed logs that no connection can be accepted. Existing connections continue.
func (d *Host) acceptFailed(err error, pause time.Duration) {
	if !d.acceptLogged.allow(d.Clock(), acceptPause) {
		return
	}
	d.isAcceptFailing.Store(true)
	d.Log.Error("no connection can be accepted for now; those that there are go on", "error", err, "fix", shortageError(err), "retry_in", pause,
		"connections", d.Limits.Connections())
}

// noteAccepting logs that connections can be accepted again, if acceptFailed logged the opposite.
func (d *Host) noteAccepting() {
	if d.isAcceptFailing.Load() && d.isAcceptFailing.Swap(false) {
		d.Log.Info("connections are accepted again", "connections", d.Limits.Connections())
	}
}
