package session

import (
	"fmt"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// counted matches a grant with count=n.
func counted(n int) string { return granted5 + fmt.Sprint(` count=`, n) }

// LOCKs count up on one lease. As many UNLOCKs release it.
func TestReentrant(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	lease := w.Say("LOCK a reentrant=yes", counted(1))[0]
	same := `OK lock=a lease=` + lease + ` fence=\d+ ttl=\d\d\d\d deadline=\d+ guard=\d+`
	w.Say("LOCK a reentrant=yes ttl=20s", same+` count=2`)
	w.Say("TRY a reentrant=yes", same+` count=3`)
	w.Say("LOCK a", `ERR ALREADY lock=a : .*`)
	w.Say("LOCK a reentrant=no", `ERR ALREADY lock=a : .*`)
	w.Say("TRY a reentrant=yes owner=2", `ERR HELD lock=a .*`)
	other.Say("TRY a reentrant=yes", `ERR HELD lock=a .*`)
	w.Say("CHECK a", same+` count=3`)
	w.Say("EXTEND a", same+` count=3`)
	w.Say("UNLOCK a", `OK lock=a count=2`)
	other.Say("UNLOCK lease="+lease, `OK lock=a count=1`)
	other.Say("TRY a", `ERR HELD lock=a .*`)
	other.Until("STATUS", `leases=1\b.*grants=1\b`)
	w.Say("CHECK a", same)
	w.Say("UNLOCK a", `OK lock=a`)
	w.Say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
	other.Say("TRY a", granted5)
}

// Only the further LOCK needs reentrant=yes, not the first.
func TestReentrantAfterPlain(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Say("LOCK a", granted5)
	w.Say("LOCK a reentrant=yes", counted(2))
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
	w.Say("LOCK a reentrant=yes", counted(1))
}

// A further LOCK that arrives while the first waits gets the same outcome, unless it is cancelled
// earlier.
func TestReentrantWaitsWithTheFirst(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, w := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes")
	holder.Until("LIST", `state=waiting`)
	w.Send("@2 LOCK a reentrant=yes id=x")
	w.Send("@3 LOCK a reentrant=yes id=y")
	w.Say("@4 TRY a reentrant=yes", `@4 ERR HELD lock=a .*pid=.*`)
	w.Say("@5 LOCK a reentrant=yes wait=1", `@5 ERR HELD lock=a .*pid=.*`)
	w.Say("@6 LOCK a", `@6 ERR ALREADY .*`)
	w.Send("@7 LOCK a id=y") // a repeat
	answers(w, "CANCEL 3", `OK`, `@3 ERR CANCELLED lock=a : .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@1 `+counted(2), `@2 `+counted(2), `@7 ERR CANCELLED lock=a : .*ended without a grant.*`)
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes")
	holder.Until("LIST", `state=waiting`)
	w.Send("@2 LOCK a reentrant=yes")
	w.Send("@3 LOCK a reentrant=yes id=x")
	answers(w, "CANCEL 1", `OK`, `@1 ERR CANCELLED .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@2 `+oneOrTwo, `@3 `+oneOrTwo)
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
}

// oneOrTwo matches the counts of two LOCKs that continue: one may be granted before the other waits
// with it.
var oneOrTwo = `(?:` + counted(1) + `|` + counted(2) + `)`

// The wait= of the first LOCK does not apply to the others.
func TestReentrantContinuesToWait(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, w := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes wait=200")
	w.Send("@2 LOCK a reentrant=yes")
	w.Send("@3 LOCK a reentrant=yes wait=1m")
	w.Say("@4 TRY a reentrant=yes", `@4 ERR HELD .*`) // the daemon has started the others
	w.Want(`@1 ERR HELD lock=a .*`)
	holder.Until("LIST", `state=waiting`)
	holder.Send("LIST")
	holder.Want(`- lock=a state=held .*`)
	holder.Want(`- lock=a state=waiting .*since=\d{3,}\b.*`) // since the request, not since the HELD
	holder.Want(`OK n=2`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@2 `+oneOrTwo, `@3 `+oneOrTwo)
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
}

// endsOnlyItself is true for errors that end one LOCK, and false for those that end all LOCKs that
// wait together.
func TestEndsOneAlone(t *testing.T) {
	for err, want := range map[error]bool{
		server.ErrCancelled: true, server.ErrGone: true, server.ErrLate: true,
		&redlock.HeldError{}: true, &redlock.NoQuorumError{}: true,
		&redlock.LostError{}: false, redlock.ErrReleased: false, server.ErrShutdown: false, errAlready: false, nil: false,
	} {
		if got := endsOnlyItself(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// answers sends a request and wants one line for each pattern, in any order.
func answers(w *wire, request string, patterns ...string) {
	w.T.Helper()
	w.Send("%s", request)
	w.wantAll(patterns...)
}

// wantAll wants one line for each pattern, in any order.
func (w *wire) wantAll(patterns ...string) {
	w.T.Helper()
	wanted := map[string]string{}
	for _, pattern := range patterns {
		wanted[tagOf(pattern)] = pattern
	}
	for range patterns {
		line := w.Line()
		daemontest.Matches(w.T, line, wanted[tagOf(line)])
		delete(wanted, tagOf(line))
	}
}

// tagOf returns a line's tag. If the line has none, it is "O" (OK), "E" (ERR) or "L" (LOST).
func tagOf(line string) string {
	if line[0] == '@' {
		return line[:2]
	}
	return line[:1]
}

// A loss ends all counts at once.
func TestReentrantLoss(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, admin := d.dial(), d.dial()
	w.Say("LOCK a reentrant=yes", counted(1))
	w.Say("LOCK a reentrant=yes", counted(2))
	w.Say("LOCK a reentrant=yes", counted(3))
	admin.Say("FORCE a", `OK lock=a n=1 held=\d .*`)
	w.Want(`LOST lock=a lease=\S+ reason=forced : .*`)
	w.Say("UNLOCK a", `ERR LOST lock=a reason=\w+ : .*`)
	admin.Say("TRY a", granted5)
	w.Say("UNLOCK a", `ERR LOST lock=a reason=\w+ : .*`)
	admin.Say("UNLOCK a", `OK lock=a`)
	w.Say("LOCK a reentrant=yes", counted(1))
	w.Say("UNLOCK a", `OK lock=a`)
	admin.Say("TRY a", granted5)
}

// The end of the connection releases the lease, however often it was counted.
func TestReentrantConnectionEnds(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	w.Say("LOCK a reentrant=yes", counted(1))
	w.Say("LOCK a reentrant=yes", counted(2))
	lease := w.Say("LOCK b reentrant=yes hold=ttl", counted(1))[0]
	w.Say("LOCK b reentrant=yes", counted(2))
	other.Send("LOCK a")
	d.dial().Until("LIST", `state=waiting`)
	w.Conn.Close()
	other.Want(granted5)
	other.Until("LIST", `lock=b state=held`)
	other.Say("UNLOCK lease="+lease, `OK lock=b`) // the connection that counted is closed
	other.Say("TRY b", granted5)
}

// A repeat of a counted LOCK does not count again. After an UNLOCK has undone that LOCK, its id is
// a new request.
func TestReentrantIDs(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Say("LOCK a reentrant=yes id=x", counted(1))
	w.Say("LOCK a reentrant=yes id=x", counted(1)+` again=yes`)
	w.Say("LOCK a reentrant=yes id=y", counted(2))
	w.Say("LOCK a reentrant=yes id=y", counted(2)+` again=yes`)
	w.Say("LOCK a id=y", granted5+` again=yes`)
	w.Say("LOCK a reentrant=yes id=x", counted(2)+` again=yes`)
	w.Say("LOCK a id=z", `ERR ALREADY .*`)
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("LOCK a id=y", `ERR ALREADY .*`)
	w.Say("LOCK a reentrant=yes id=y", counted(2))
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
}

// The limit detects a loop without an UNLOCK.
func TestReentrantCountsToAThousand(t *testing.T) {
	d := startDaemon(t, 1, nil)
	w := d.dial()
	for n := range locktable.MaxCount {
		w.Say("LOCK a reentrant=yes", counted(n+1))
	}
	w.Say("LOCK a reentrant=yes", `ERR LIMIT lock=a : .*1000 times.*UNLOCK missing.*`)
	w.Say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, locktable.MaxCount-1))
	w.Say("LOCK a reentrant=yes", counted(locktable.MaxCount))
}

// A further LOCK that stops waiting while the first asks the nodes gets the error that the nodes
// gave to the first.
func TestReentrantGetsErrorOfTheFirst(t *testing.T) {
	here := startDaemon(t, 3, longNodeTimeout)
	w, other := here.dial(), here.another().dial()
	other.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes")
	w.Until("TRY a reentrant=yes", `^ERR HELD lock=a .* : a: held by \S+ on \S+ \(pid \d+\)`)
}
