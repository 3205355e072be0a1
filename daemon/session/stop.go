package session

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/systemd"
)

// shutdownTimeout bounds how long a stopping daemon answers running requests.
const shutdownTimeout = 5 * time.Second

// freezeTimeout bounds how long Freeze answers clients whose connections are not kept, and then how
// long it waits for the nodes.
const freezeTimeout = 500 * time.Millisecond

// Freeze ends the daemon, and leaves its leases and waiting requests to the next one. It ends
// connections that the service manager does not have, as Shutdown does.
func (d *Host) Freeze(srv *server.Server) {
	d.Log.Info("stopping; the next daemon continues with what is kept", "leases", d.Held())
	d.freeze(srv, (*state.ConnEntry).FixState)
}

// FreezeToReplace is Freeze for a process that replaces itself. It returns the connections, all of
// which outlast that.
func (d *Host) FreezeToReplace(srv *server.Server) (conns []systemd.Passed) {
	d.replacing.Store(true)
	d.freeze(srv, (*state.ConnEntry).FixPassed)
	for _, s := range srv.Kept() {
		conn, err := s.(*session).stored.Passed()
		if err == nil {
			err = conn.FD.Control(func(uintptr) {})
		}
		if err != nil { // the others must not end with it
			d.Log.Error("a connection cannot be passed to the next process", "error", err)
			continue
		}
		conns = append(conns, conn)
	}
	return conns
}

// freeze keeps the connections for which keep returns true.
func (d *Host) freeze(srv *server.Server, keep func(*state.ConnEntry) bool) {
	d.Stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	err := srv.Freeze(ctx, server.FreezeOptions{
		Keep: func(s server.Session) bool { return keep(&s.(*session).stored) },
		Bye:  bye,
		Seal: d.seal,
	})
	if err != nil {
		d.Log.Warn("some requests were not answered", "error", err)
	}
}

// seal ends the journal. It first sends the nodes all releases that were answered, because a later
// daemon does not know of them. It extends locks with min=, because there may be no later daemon.
func (d *Host) seal() {
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	d.Nodes.Flush(ctx)
	d.outlastMin(d.allLeases(), freezeTimeout)
	d.Journal.Freeze()
}

// Shutdown ends all connections. It releases nothing, because a client whose connection the daemon
// ends may still work.
func (d *Host) Shutdown(srv *server.Server) {
	d.Stopping.Store(true)
	d.Log.Info("stopping", "leases_left", d.Held())
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx, bye); err != nil {
		d.Log.Warn("some requests were not answered", "error", err)
	}
	d.outlastMin(d.allLeases(), freezeTimeout)
	d.Journal.Close()
}

// bye returns the last line on a connection, which states how long its leases stay on the nodes.
func bye(s server.Session) *ipc.Response {
	return byeFor(s.(*session).resumableFor())
}

func byeFor(left time.Duration) *ipc.Response {
	bye := new(ipc.Response).Notice(ipc.EventBye).Ms("resume", max(left, 0))
	if left <= 0 {
		return bye.Say("the daemon stops, or could not keep this connection, and no lease of it can be resumed: ask again on a new one")
	}
	return bye.Say("the daemon stops; leases stay on the nodes for this time: RESUME them on a new connection")
}

// byeLate returns the last line for a client that did not end a line in time. The daemon cuts the
// connection, so its leases expire.
func byeLate(server.Session) *ipc.Response {
	return new(ipc.Response).Notice(ipc.EventBye).Ms("resume", 0).
		Say("leases of this connection are no longer extended, and others may get the locks from the deadline on")
}
