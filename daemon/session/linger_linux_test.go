package session

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/state"
)

// A restart does not start linger= again, neither after the end of a connection nor of a process.
func TestLingerContinuesAfterRestart(t *testing.T) {
	s := newSuccession(t)
	c, look, holder := newChild(t, os.Getuid()), s.dial(), s.dial()
	for _, name := range []string{"mine", "mine2"} {
		holder.Say("LOCK "+name+" ttl=30s linger=30s", granted5)
	}
	for _, name := range []string{"its", "its2"} {
		look.Say(fmt.Sprintf("LOCK %s ttl=30s linger=30s hold=pid pid=%d", name, c.pid), granted5)
	}
	holder.Conn.Close()
	c.killed()
	daemontest.Eventually(t, "the daemon has recorded both ends", func() bool { return s.lingering() == 4 })
	s.end()
	s.found = func(p *state.Recovered) {
		for _, name := range []string{"mine", "its"} { // a second is left; restarted, linger= would last longer than a test waits
			recordOf(t, p, name).LingerSince -= 29 * time.Second
		}
	}
	s.start(look)
	look.Want(`BACK .*`)
	for _, name := range []string{"mine", "its"} {
		look.Say("TRY "+name+"2", `ERR HELD .*`)
		look.Say("LOCK "+name+" wait=20s", granted5)
	}
}

// lingering returns how many leases are recorded as lingering.
func (s *succession) lingering() (n int) {
	cfg := *s.d.Cfg
	cfg.Socket.Path = s.path
	p, err := (&testDaemon{&daemontest.Daemon{T: s.t, Cfg: &cfg}}).recordedNow()
	if err != nil {
		return 0 // it was read while it changed
	}
	for _, l := range p.Leases {
		if l.LingerSince != 0 {
			n++
		}
	}
	return n
}
