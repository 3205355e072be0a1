package daemon

import (
	"os"
	"testing"
)

// A daemon that stops answers waiting requests, sends BYE, and leaves the leases of living clients on
// the nodes.
func TestStopReleasesNothing(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, waiter, idle := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	idle.Say("PING", `OK`)
	waiter.Send("LOCK a")
	idle.Until("LIST", `state=waiting`)
	if err := d.Stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	waiter.Want(`ERR SHUTDOWN lock=a : .*`)
	for w, bye := range map[*wire]string{
		holder: `BYE resume=[1-9]\d* : .*: RESUME them on a new connection`,
		waiter: `BYE resume=0 : .* no lease of it can be resumed: .*`,
		idle:   `BYE resume=0 : .* no lease of it can be resumed: .*`,
	} {
		w.Want(bye)
		w.Ends()
	}
	if keys := d.Keys(); len(keys) != 3 {
		t.Errorf("keys on the nodes: %v, want the lease on all three", keys)
	}
	if _, err := os.Lstat(d.Cfg.Socket.Path); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
}
