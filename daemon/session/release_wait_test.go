package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
)

// UNLOCK wait= bounds the wait for nodes that hang. The daemon continues the release.
func TestUnlockWaitIsBounded(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Quorum.NodeTimeout = time.Hour })
	w := d.dial()
	w.Say("LOCK a ttl=30s", granted5)
	w.Say("LOCK b ttl=30s", granted5)
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.Say("UNLOCK a wait=0", `OK lock=a pending=1 : the release continues: .*`) // without wait=, it would take an hour
	w.Say("UNLOCK b wait=20ms", `OK lock=b pending=1 : the release continues: .*`)
	w.Say("CHECK a", `ERR NOTHELD .*`)
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	d.AwaitNoKeys()
}

// After UNLOCK wait=0, each node gets the release before a later request of this host.
func TestLockAfterUnlockWithoutWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		for _, sim := range d.sims {
			sim.SetDelay(func() (request, reply time.Duration) { return time.Millisecond, time.Millisecond })
		}
		w := d.dial()
		for range 50 {
			w.Say("TRY a", granted5)
			w.Say("UNLOCK a wait=0", `OK lock=a pending=1 : .*`) // the answers take 2 ms
		}
		w.Say("LOCK a", granted5)
		w.Say("UNLOCK a", `OK lock=a`)
	})
}
