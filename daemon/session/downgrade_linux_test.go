package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/state"
)

// Readers of this host and of another one wait until the holder downgrades to shared. A writer
// waits for all of them. The nodes may lose their scripts meanwhile.
func TestDowngrade(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	other := d.another()
	w, look, lookThere := d.dial(), d.dial(), other.dial()
	lease := w.Say("LOCK a", granted5)[0]
	here, there := d.dial(), other.dial()
	here.sendWaiting(look, "LOCK a mode=shared", 1)
	there.sendWaiting(lookThere, "LOCK a mode=shared", 1)
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
	}
	if again := w.Say("EXTEND a mode=shared", granted5)[0]; again != lease {
		t.Errorf("the lease changed to %s, want %s", again, lease)
	}
	here.Want(granted5)
	there.Want(granted5)
	w.Say("EXTEND a mode=shared ttl=20s", granted5) // again
	w.Say("CHECK a", granted5)
	w.Say("LOCK a reentrant=yes", `ERR ALREADY .*another mode.*`)
	look.Send("WHO a")
	for range 3 {
		look.Want(`- lock=a mode=shared ` + holderWords + ` ttl=\d+ held=[23] nodes=3`)
	}
	look.Want(`OK n=3`)
	look.Until("LIST", `(?s)(lock=a state=held mode=shared.*){2}`)
	look.Say("TRY a", `ERR HELD lock=a mode=shared ttl=.*`)
	w.Say("EXTEND a mode=exclusive", `ERR OPTION lock=a : .*wait for each other.*`)
	writer := other.dial()
	writer.sendWaiting(lookThere, "LOCK a", 1)
	w.Say("UNLOCK a", `OK lock=a`)
	here.Say("UNLOCK a", `OK lock=a`)
	lookThere.Until("STATUS", `waiters=1\b`)
	there.Say("UNLOCK a", `OK lock=a`)
	writer.Want(granted5)
	writer.Say("EXTEND a mode=exclusive", granted5)
	writer.Conn.Close()
	d.AwaitNoKeys()
}

// Several names become shared together. An impossible request is refused, and changes nothing.
func TestDowngradeKinds(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, reader := d.dial(), d.dial()
	w.Say("LOCK b,c", granted(`b,c`))
	w.Say("EXTEND b,c mode=shared", granted(`b,c`))
	reader.Say("TRY c,b mode=shared", granted(`c,b`))
	w.Say("LOCK r mode=shared", granted5)
	w.Say("EXTEND r mode=shared", granted5)
	w.Say("LOCK s slots=2", grantedSlot)
	w.Say("EXTEND s mode=shared", `ERR OPTION lock=s : .*semaphore.*`)
	w.Say("LOCK t reentrant=yes", granted5+` count=1`)
	w.Say("LOCK t reentrant=yes", granted5+` count=2`)
	w.Say("EXTEND t mode=shared", `ERR OPTION lock=t : .*counts 2 exclusive LOCKs.*`)
	w.Say("EXTEND t ttl=5s guard=1s mode=shared", `ERR OPTION.*`)
	reader.Say("TRY t mode=shared", `ERR HELD lock=t ttl=.*`)
	w.Say("UNLOCK t", `OK lock=t count=1`)
	w.Say("EXTEND t mode=shared", granted5)
	reader.Say("TRY t mode=shared", granted5)
	w.Say("LOCK u hold=ttl ttl=5s", granted5)
	w.Say("EXTEND u mode=shared", granted5)
	reader.Say("TRY u mode=shared", granted5)
	w.Say("EXTEND none mode=shared", `ERR NOTHELD lock=none : .*`)
}

// The next daemon restores the lease as shared, whether the nodes got the downgrade or not. If they
// did not, they get it with the next extension.
func TestDowngradeOutlastsDaemon(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuccession(t)
	down := s.nodesMayFail()
	s.end()
	s.start()
	w := s.dial()
	w.Say("LOCK a ttl=9s", granted5)
	down.Store(true)
	w.Say("EXTEND a mode=shared", `ERR NOQUORUM lock=a .*the lease is shared from now on.*`)
	s.end()
	down.Store(false)
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			if !l.Record.Shared {
				t.Error("a lease is recorded as exclusive")
			}
		}
	}
	for range 2 { // the second one reads what the first one has compacted
		s.start(w)
		w.Want(`BACK .*`)
		look := s.dial()
		look.Until("LIST", `lock=a state=held mode=shared`)
		look.Until("TRY a mode=shared", `OK lock=a`)
		look.Say("UNLOCK a", `OK lock=a`)
		look.Say("TRY a", `ERR HELD lock=a mode=shared .*`)
		look.Conn.Close()
		s.end()
	}
	s.start(w)
	w.Want(`BACK .*`)
	w.Say("UNLOCK a", `OK lock=a`)
}
