package session

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A restart does not start linger= again, neither after the end of a connection nor of a process.
func TestLingerContinuesAfterRestart(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	c, look, holder := newChild(t, os.Getuid()), d.dial(), d.dial()
	holder.Say("LOCK mine linger=4s", granted5)
	look.Say(fmt.Sprintf("LOCK its linger=4s hold=pid pid=%d", c.pid), granted5)
	ended := redlock.BootTime()
	holder.Conn.Close()
	c.killed()
	look.Until("STATUS", `connections=1\b`)
	look.Say("LOCK clock hold=ttl ttl=2s", granted5)
	look.Want(`LOST lock=clock .*`)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d.Start()
	w := d.dial()
	w.Say("TRY mine", `ERR HELD .*`)
	w.Say("TRY its", `ERR HELD .*`)
	for _, name := range []string{"mine", "its"} {
		w.Say("LOCK "+name, granted5)
		if took := redlock.BootTime() - ended; took < 4*time.Second || took > 5500*time.Millisecond {
			t.Errorf("%s is released %v after its holder's end, want 4s", name, took)
		}
	}
}
