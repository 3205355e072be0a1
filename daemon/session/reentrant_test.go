package session

import (
	"fmt"
	"testing"

	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// counted is a grant that is counted n times.
func counted(n int) string { return granted5 + fmt.Sprint(` count=`, n) }

// TestReentrant: LOCKs count up, on one lease; as many UNLOCKs release it.
func TestReentrant(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	lease := w.say("LOCK a reentrant=yes", counted(1))[0]
	same := `OK lock=a lease=` + lease + ` fence=\d+ ttl=\d\d\d\d deadline=\d+`
	w.say("LOCK a reentrant=yes ttl=20s", same+` count=2`)
	w.say("TRY a reentrant=yes", same+` count=3`)
	w.say("LOCK a", `ERR ALREADY lock=a : .*`)
	w.say("LOCK a reentrant=no", `ERR ALREADY lock=a : .*`)
	w.say("TRY a reentrant=yes owner=2", `ERR HELD lock=a .*`)
	other.say("TRY a reentrant=yes", `ERR HELD lock=a .*`)
	w.say("CHECK a", same+` guard=2000 count=3`)
	w.say("EXTEND a", same+` guard=2000 count=3`)
	w.say("UNLOCK a", `OK lock=a count=2`)
	other.say("UNLOCK lease="+lease, `OK lock=a count=1`)
	other.say("TRY a", `ERR HELD lock=a .*`)
	other.until("STATUS", `leases=1\b.*grants=1\b`)
	w.say("CHECK a", same+` guard=2000`)
	w.say("UNLOCK a", `OK lock=a`)
	w.say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
	other.say("TRY a", granted5)
}

// TestReentrantAfterPlain: it is the further LOCK that says that it counts.
func TestReentrantAfterPlain(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.say("LOCK a", granted5)
	w.say("LOCK a reentrant=yes", counted(2))
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
	w.say("LOCK a reentrant=yes", counted(1))
}

// TestReentrantWaitsWithTheFirst: a further LOCK that comes while the first
// waits has that one's outcome, unless it gives up before.
func TestReentrantWaitsWithTheFirst(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, w := d.dial(), d.dial()
	holder.say("LOCK a", granted5)
	w.send("@1 LOCK a reentrant=yes")
	holder.until("LIST", `state=waiting`)
	w.send("@2 LOCK a reentrant=yes id=x")
	w.send("@3 LOCK a reentrant=yes id=y")
	w.say("@4 TRY a reentrant=yes", `@4 ERR HELD lock=a .*pid=.*`)
	w.say("@5 LOCK a reentrant=yes wait=1", `@5 ERR HELD lock=a .*pid=.*`)
	w.say("@6 LOCK a", `@6 ERR ALREADY .*`)
	w.send("@7 LOCK a id=y") // a repeat
	answers(w, "CANCEL 3", `OK`, `@3 ERR CANCELLED lock=a : .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@1 `+counted(2), `@2 `+counted(2), `@7 ERR CANCELLED lock=a : .*given up.*`)
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
	holder.say("LOCK a", granted5)
	w.send("@1 LOCK a reentrant=yes")
	holder.until("LIST", `state=waiting`)
	w.send("@2 LOCK a reentrant=yes")
	w.send("@3 LOCK a reentrant=yes id=x")
	answers(w, "CANCEL 1", `OK`, `@1 ERR CANCELLED .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@2 `+oneOrTwo, `@3 `+oneOrTwo)
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
}

// oneOrTwo: of two that go on, the one may be granted before the other waits with it.
var oneOrTwo = `(?:` + counted(1) + `|` + counted(2) + `)`

// TestReentrantWaitsOn: the first one's wait= is not that of the others.
func TestReentrantWaitsOn(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, w := d.dial(), d.dial()
	holder.say("LOCK a", granted5)
	w.send("@1 LOCK a reentrant=yes wait=200")
	w.send("@2 LOCK a reentrant=yes")
	w.send("@3 LOCK a reentrant=yes wait=1m")
	w.say("@4 TRY a reentrant=yes", `@4 ERR HELD .*`) // the others are begun
	w.want(`@1 ERR HELD lock=a .*`)
	holder.until("LIST", `state=waiting`)
	holder.send("LIST")
	holder.want(`- lock=a state=held .*`)
	holder.want(`- lock=a state=waiting .*since=\d{3,}\b.*`) // of the request, not of the HELD
	holder.want(`OK n=2`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@2 `+oneOrTwo, `@3 `+oneOrTwo)
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
}

// What ends the lock, or the daemon, ends all.
func TestReentrantSharesTheRest(t *testing.T) {
	for err, want := range map[error]bool{
		server.ErrCancelled: true, server.ErrGone: true, server.ErrLate: true,
		&redlock.HeldError{}: true, &redlock.NoQuorumError{}: true,
		&redlock.LostError{}: false, redlock.ErrReleased: false, server.ErrShutdown: false, errAlready: false, nil: false,
	} {
		if got := endsOneAlone(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// answers sends a request and wants these lines, in any order.
func answers(w *wire, request string, patterns ...string) {
	w.t.Helper()
	w.send("%s", request)
	w.wantAll(patterns...)
}

// wantAll reads a line for each of these, in any order.
func (w *wire) wantAll(patterns ...string) {
	w.t.Helper()
	wanted := map[string]string{}
	for _, pattern := range patterns {
		wanted[tagOf(pattern)] = pattern
	}
	for range patterns {
		line := w.line()
		matches(w.t, line, wanted[tagOf(line)])
		delete(wanted, tagOf(line))
	}
}

// tagOf is a line's tag, "O" (OK), "E" (ERR) or "L" (LOST) where it has none.
func tagOf(line string) string {
	if line[0] == '@' {
		return line[:2]
	}
	return line[:1]
}

// TestReentrantLoss ends all counts at once.
func TestReentrantLoss(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, admin := d.dial(), d.dial()
	w.say("LOCK a reentrant=yes", counted(1))
	w.say("LOCK a reentrant=yes", counted(2))
	w.say("LOCK a reentrant=yes", counted(3))
	admin.say("FORCE a", `OK lock=a n=1 held=\d .*`)
	w.want(`LOST lock=a lease=\S+ reason=forced : .*`)
	w.say("UNLOCK a", `ERR LOST lock=a reason=\w+ : .*`)
	admin.say("TRY a", granted5)
	w.say("UNLOCK a", `ERR LOST lock=a reason=\w+ : .*`)
	admin.say("UNLOCK a", `OK lock=a`)
	w.say("LOCK a reentrant=yes", counted(1))
	w.say("UNLOCK a", `OK lock=a`)
	admin.say("TRY a", granted5)
}

// TestReentrantConnectionEnds: however often it counted.
func TestReentrantConnectionEnds(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	w.say("LOCK a reentrant=yes", counted(1))
	w.say("LOCK a reentrant=yes", counted(2))
	lease := w.say("LOCK b reentrant=yes hold=ttl", counted(1))[0]
	w.say("LOCK b reentrant=yes", counted(2))
	other.send("LOCK a")
	d.dial().until("LIST", `state=waiting`)
	w.conn.Close()
	other.want(granted5)
	other.until("LIST", `lock=b state=held`)
	other.say("UNLOCK lease="+lease, `OK lock=b`) // who counted is gone
	other.say("TRY b", granted5)
}

// TestReentrantIDs: a repeat of a LOCK that is counted counts nothing, until
// the LOCK is undone; then it is a new one.
func TestReentrantIDs(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.say("LOCK a reentrant=yes id=x", counted(1))
	w.say("LOCK a reentrant=yes id=x", counted(1)+` again=yes`)
	w.say("LOCK a reentrant=yes id=y", counted(2))
	w.say("LOCK a reentrant=yes id=y", counted(2)+` again=yes`)
	w.say("LOCK a id=y", granted5+` again=yes`)
	w.say("LOCK a reentrant=yes id=x", counted(2)+` again=yes`)
	w.say("LOCK a id=z", `ERR ALREADY .*`)
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("LOCK a id=y", `ERR ALREADY .*`)
	w.say("LOCK a reentrant=yes id=y", counted(2))
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
}

// TestReentrantCountsToAThousand: an UNLOCK that is missing in a loop is found.
func TestReentrantCountsToAThousand(t *testing.T) {
	d := startDaemon(t, 1, nil)
	w := d.dial()
	for n := range maxCount {
		w.say("LOCK a reentrant=yes", counted(n+1))
	}
	w.say("LOCK a reentrant=yes", `ERR LIMIT lock=a : .*1000 times.*UNLOCK missing.*`)
	w.say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, maxCount-1))
	w.say("LOCK a reentrant=yes", counted(maxCount))
}

// Where the first asks the nodes, one that counts on it and gives up hears what that one
// has met there.
func TestReentrantMeetsWhatTheFirstMet(t *testing.T) {
	here := startDaemon(t, 3, patientNodes)
	w, other := here.dial(), here.another().dial()
	other.say("LOCK a", granted5)
	w.send("@1 LOCK a reentrant=yes")
	w.until("TRY a reentrant=yes", `^ERR HELD lock=a .* : a: held by \S+ on \S+ \(pid \d+\)`)
}
