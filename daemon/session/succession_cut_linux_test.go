package session

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/systemd"
)

// If the next daemon cannot use a stored connection, that does not count as the client's end, nor
// does it for the daemon after that one. The lease can be resumed until its deadline.
func TestUnusableConnectionIsNotClientEnd(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	s.end()
	s.startWith(state.Inherited{Conns: []systemd.StoredConn{{Name: state.ConnName(s.ends[w].number), Err: errors.New("no room")}}, Marked: true})
	s.end()
	s.start()
	again, _ := s.dialUnstored()
	again.Say("TRY a", `ERR HELD .*`)
	again.Say("RESUME a lease="+lease, granted5)
}

// A connection that the next daemon ends because its records are incomplete is not the client's end
// either, whenever that daemon is killed.
func TestCutConnectionIsNotClientEnd(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	w.Say("LOCK a ttl=20s", granted5)
	s.end()
	nc, err := net.FileConn(s.ends[w].file)
	if err != nil {
		t.Fatal(err)
	}
	restoreFrom(t, s.path, func(d *Host, p *state.Recovered) {
		p.Complete = false
		r := restoration{d: d, recovered: p}
		r.takeConns([]systemd.StoredConn{{Name: state.ConnName(s.ends[w].number), Conn: nc.(*net.UnixConn)}})
	})
	w.Want(`BYE resume=[1-9]\d* : .*`)
	restoreFrom(t, s.path, func(_ *Host, p *state.Recovered) {
		if known := p.Conns[s.ends[w].number]; known == nil || known.Stored {
			t.Errorf("the connection is recorded as %+v, want one that is not stored", known)
		}
	})
}

// A connection that was cut, but that the service manager still hands over, is not the client's
// end.
func TestCutConnectionIsHandedOver(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored() // the record says that it is not stored, as before a cut
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	s.end()
	if err := unix.Shutdown(int(s.ends[w].file.Fd()), unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	s.start(w)
	again, _ := s.dialUnstored()
	again.Say("TRY a", `ERR HELD .*`)
	again.Say("RESUME a lease="+lease, granted5)
}

// A lease with min= whose connection the daemon cuts stays taken until the last deadline that its
// client was given, and the next daemon knows that: the client may still work.
func TestCutLeaseWithMinOutlastsTheDaemon(t *testing.T) {
	s := newSuccession(t)
	w, session := s.dialUnstored()
	w.Say("LOCK a min=1s ttl=20s", granted5)
	h := s.d.allLeases()[0]
	s.d.mu.Lock()
	s.d.table.Disconnect(&session.client)
	s.d.mu.Unlock()
	deadline := h.lease.Deadline()
	s.d.clientGone(h, &session.client, true)
	s.end()
	s.found = func(p *state.Recovered) {
		if l := p.Leases[h.number]; l == nil || l.Life.State != locktable.Kept || l.Record.Since+l.Min < deadline {
			t.Errorf("recorded is %+v, want a kept lease that stays until %v", l, deadline)
		}
	}
	s.start()
}
