package session

import (
	"context"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// drainPollInterval is how often Drain looks for leases that clients still hold.
const drainPollInterval = 50 * time.Millisecond

// Drain waits until no client holds a lease, at most as long as drain of the config says. It
// refuses all LOCKs that are not granted, and new ones. Everything else continues to work: leases
// are extended, and clients may connect.
func (d *Host) Drain(srv *server.Server) {
	if d.Cfg.Drain == 0 {
		return
	}
	begin := d.Clock()
	d.drainUntil.Store(int64(begin + d.Cfg.Drain))
	srv.CancelVerbs(&drainError{d.Cfg.Drain}, ipc.VerbLock, ipc.VerbTry)
	d.Log.Info("draining: new locks are refused", "leases", d.heldByClients(), "at_most", d.Cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), d.Cfg.Drain)
	defer cancel()
	tick := time.NewTicker(drainPollInterval)
	defer tick.Stop()
	for d.heldByClients() > 0 {
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	d.Log.Info("drained", "took", (d.Clock() - begin).Round(time.Millisecond), "leases_left", d.heldByClients())
}

// heldByClients counts the leases that Drain waits for: without this daemon, they end before their
// clients do. Others end by themselves, or their clients are gone.
func (d *Host) heldByClients() (n int) {
	for _, h := range d.allLeases() {
		lingers := h.linger() > 0 && !h.OfProcess && d.reporter(h) == nil
		if !h.EndsByItself() && !d.isKept(h) && !lingers {
			n++
		}
	}
	return n
}

// drainText describes a drain for STATUS.
func (d *Host) drainText(left time.Duration) string {
	leases := "1 held lock has"
	if n := d.heldByClients(); n != 1 {
		leases = fmt.Sprintf("%d held locks have", n)
	}
	return fmt.Sprintf("draining: redlockd is stopping and grants no new locks; it ends when %s ended, in at most %v", leases, Seconds(left))
}
