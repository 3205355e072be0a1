package session

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/systemd"
)

// A connection that could not be gone on with is none that its client has ended, for the daemon
// after the next one neither: its lease can be resumed until it is over.
func TestUselessConnectionIsNotGone(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	s.end()
	s.startWith(state.Inherited{Conns: []systemd.StoredConn{{Name: state.ConnName(s.ends[w].number), Err: errors.New("no room")}}, Marked: true})
	s.end()
	s.start()
	again, _ := s.dialUnkept()
	again.Say("TRY a", `ERR HELD .*`)
	again.Say("RESUME a lease="+lease, granted5)
}

// Nor is one that we end because not all is known of it, whenever the daemon that does so is
// killed.
func TestCutConnectionIsNotGone(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	w.Say("LOCK a ttl=20s", granted5)
	s.end()
	nc, err := net.FileConn(s.ends[w].file)
	if err != nil {
		t.Fatal(err)
	}
	succeeding(t, s.path, func(d *Host, p *state.Recovered) {
		p.Complete = false
		r := restoration{d: d, past: p}
		r.takeConns([]systemd.StoredConn{{Name: state.ConnName(s.ends[w].number), Conn: nc.(*net.UnixConn)}})
	})
	w.Want(`BYE resume=[1-9]\d* : .*`)
	succeeding(t, s.path, func(_ *Host, p *state.Recovered) {
		if known := p.Conns[s.ends[w].number]; known == nil || known.Stored {
			t.Errorf("the connection is noted as %+v, want one that is not stored", known)
		}
	})
}

// Nor where the service manager has not seen by then that it is ended, and hands it over.
func TestCutConnectionIsHandedOver(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept() // as it is noted before it is cut
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	s.end()
	if err := unix.Shutdown(int(s.ends[w].file.Fd()), unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	s.start(w)
	again, _ := s.dialUnkept()
	again.Say("TRY a", `ERR HELD .*`)
	again.Say("RESUME a lease="+lease, granted5)
}
