package session

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// The session on the first page of the protocol works.
func TestProtocolExample(t *testing.T) {
	d := startDaemon(t, 5, nil)
	a, b := d.dial(), d.dial()
	a.Say("LOCK nightly-backup wait=5s", `OK lock=nightly-backup lease=\S+ fence=\d+ ttl=9\d\d\d deadline=\d+ guard=2000`)
	a.Say("CHECK nightly-backup", `OK lock=nightly-backup lease=\S+ fence=\d+ ttl=9\d\d\d deadline=\d+ guard=2000`)
	b.Say("LOCK nightly-backup wait=0", `ERR HELD lock=nightly-backup ttl=\d+ host=\S+ pid=\d+ user=\S+ since=\d+ : nightly-backup: held by \S+ on \S+ \(pid \d+\)`)
	b.Say("TRY nightly-backup", `ERR HELD .*`)
	b.Say("WHO nightly-backup", `- lock=nightly-backup mode=exclusive host=\S+ pid=\d+ user=\S+ since=\d+ ttl=\d+ held=5 nodes=5`)
	b.Want(`OK n=1`)
	a.Say("UNLOCK nightly-backup", `OK lock=nightly-backup`)
	b.Say("WHO nightly-backup", `OK n=0`)
	a.Say("UNLOCK nightly-backup", `ERR NOTHELD lock=nightly-backup : .*`)
	a.Say("CHECK nightly-backup", `ERR NOTHELD lock=nightly-backup : .*`)
	a.Say("PING", `OK`)
	a.Say("QUIT", `OK`)
	a.Ends()
}

// deadline= is the instant on CLOCK_BOOTTIME at which the stated ttl ends.
func TestDeadlineIsBootTime(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	before := redlock.BootTime()
	got := w.Say("LOCK a ttl=10s", granted5)
	after := redlock.BootTime()
	deadline := duration(t, got[2])
	const validity = 10*time.Second - 100*time.Millisecond - 2*time.Millisecond // ttl − drift
	if deadline < (before+validity).Truncate(time.Millisecond) || deadline > after+validity {
		t.Errorf("deadline %v: want %v after an instant between %v and %v", deadline, validity, before, after)
	}
}

func duration(t *testing.T, ms string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(ms + "ms")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWrongRequests(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Lease.MaxHold = time.Minute })
	w := d.dial()
	for _, test := range []struct{ request, want string }{
		{"LOCK", `ERR SYNTAX .*`},
		{"FROBNICATE a", `ERR VERB .*FROBNICATE.*`},
		{"LOCK redlockd:x", `ERR NAME .*`},
		{"LOCK a ttl=99", `ERR OPTION lock=a : .*ttl=99ms: must be between 100ms and 30s.*`},
		{"LOCK a ttl=31s", `ERR OPTION lock=a : .*ttl=31s: must be between 100ms and 30s.*`},
		{"LOCK a guard=6s", `ERR OPTION lock=a : .*guard=6s: at most half of the ttl.*`},
		{"LOCK a max=2m", `ERR OPTION lock=a : .*max=2m0s: at most 1m0s.*`},
		{"LOCK a max=1", `ERR OPTION lock=a : .*max=1ms: at least 100ms.*`},
		{"LOCK a linger=1h", `ERR OPTION lock=a : .*linger=1h0m0s: at most 30s.*`},
		{"LOCK a slots=1001", `ERR OPTION : slots="1001": it must be a number from 1 to 1000`},
		{"LOCK a slots=3 mode=shared", `ERR OPTION lock=a : .*slots=3 with mode=shared: .*`},
		{"LOCK a,b slots=3", `ERR OPTION lock=a,b : .*slots=3 with 2 names: .*`},
		{"WHO a,b", `ERR NAME : .*`},
		{"LOCK a beat=99", `ERR OPTION lock=a : .*beat=99ms: at least 100ms; leave it out for none`},
		{"BEAT a", `ERR NOTHELD lock=a : .*`},
		{"RESUME a lease=x", `ERR NOTHELD lock=a : .*`},
		{"HELLO 2", `ERR OPTION : .*version 1 of the protocol`},
		{"UNLOCK lease=unknown", `ERR NOTHELD : .*no lease with this id.*`},
		{"CANCEL x", `OK`}, // it may have been answered meanwhile
		{"HELLO 1", `OK protocol=1 version=\S+ ttl=10000 min_ttl=100 max_ttl=30000 node_timeout=\d+ clock=\d+ max_line=4096 max_name=200`},
	} {
		w.Say(test.request, test.want)
	}
	if keys := d.Keys(); len(keys) > 0 {
		t.Errorf("refused requests left %v on the nodes", keys)
	}
}

// The answer blames the lease id, not the lock, and does not repeat the id.
func TestWrongLease(t *testing.T) {
	d := startDaemon(t, 1, nil)
	w := d.dial()
	w.Say("TRY a wait=0 ttl=20s", granted5)
	other := w.Say("LOCK b ttl=20s", granted5)[0]
	for _, id := range []string{"guess", other} {
		for _, verb := range []string{"UNLOCK", "CHECK", "EXTEND", "BEAT", "RESUME"} {
			if got := w.Say(verb+" a lease="+id, `ERR NOTHELD lock=a : (.*this id.*)`)[0]; strings.Contains(got, id) {
				t.Errorf("%s a lease=%s: the id is repeated: %s", verb, id, got)
			}
		}
	}
	w.Say("CHECK a", granted5)
}

// The protocol allows as many slots as the nodes support.
func TestMostSlots(t *testing.T) {
	if ipc.MaxSlots != redlock.MaxSlots {
		t.Errorf("the protocol allows slots=%d, the nodes %d", ipc.MaxSlots, redlock.MaxSlots)
	}
}

// HELP LOCK, and so redlockd-protocol(7), states the bounds of the options.
func TestHelpStatesBounds(t *testing.T) {
	help := strings.Join(helpLines[0].does, "\n")
	for _, want := range []string{
		fmt.Sprintf(`(?m)^slots=K: .*at most %d;`, ipc.MaxSlots),
		fmt.Sprintf(`(?m)^note=: .*at most %d bytes`, ipc.MaxNote),
		fmt.Sprintf(`(?m)^owner=: .*id=: .*1 to %d bytes$`, min(ipc.MaxOwner, ipc.MaxID)),
		fmt.Sprintf(`(?m)^beat=: .*at least %d ms`, minBeat.Milliseconds()),
		fmt.Sprintf(`(?m)^max=: .*at least %d ms`, redlock.MinTTL.Milliseconds()),
		fmt.Sprintf(`(?m)^several names, at most %d \(3,000 bytes\)`, ipc.MaxNames),
	} {
		if !regexp.MustCompile(want).MatchString(help) {
			t.Errorf("HELP LOCK lacks %q:\n%s", want, help)
		}
	}
}

func TestHelpKnowsEveryVerb(t *testing.T) {
	d := startDaemon(t, 1, nil)
	w := d.dial()
	w.Send("HELP")
	verbs := 0
	for line := w.Line(); !strings.HasPrefix(line, "OK"); line = w.Line() {
		verbs++
	}
	if verbs != len(helpLines) {
		t.Errorf("HELP shows %d verbs, want %d", verbs, len(helpLines))
	}
	for _, h := range helpLines {
		w.Say("HELP "+strings.ToLower(h.verb.String()), `- : `+h.verb.String()+`\b.*`)
		for range h.does {
			w.Want(`- : .+`)
		}
		w.Want(`OK n=\d+`)
	}
	w.Say("HELP ME", `ERR VERB : .*`)
}

// Owners of one connection exclude each other. Each one has its own leases.
func TestOwners(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Say("LOCK a owner=1", granted5)
	w.Say("LOCK a owner=1", `ERR ALREADY lock=a : .*`)
	w.Say("LOCK a owner=2 wait=0", `ERR HELD lock=a .*`)
	w.Say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
	w.Say("CHECK a owner=2", `ERR NOTHELD lock=a : .*`)
	w.Say("CHECK a owner=1", granted5)
	w.Say("UNLOCK a owner=1", `OK lock=a`)
	w.Say("LOCK a owner=2", granted5)
}

// A LOCK repeated with the same id= gets the same grant, even while the first is still waiting.
func TestSameID(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	lease := w.Say("LOCK a id=x", granted5)[0]
	w.Say("LOCK a id=x", `OK lock=a lease=`+lease+` fence=\d+ ttl=\d+ deadline=\d+ guard=\d+ again=yes`)
	w.Say("LOCK a id=y", `ERR ALREADY .*`)
	w.Say("LOCK a", `ERR ALREADY .*`)
	other.Send("@1 LOCK a id=z")
	w.Until("LIST", `state=waiting`)
	other.Send("@2 LOCK a id=z")
	other.Send("@3 LOCK a id=other")
	other.Want(`@3 ERR ALREADY .*`)
	w.Say("UNLOCK a", `OK lock=a`)
	got := map[string]bool{other.Line()[:2]: true, other.Line()[:2]: true}
	if !got["@1"] || !got["@2"] {
		t.Errorf("answers to %v, want @1 and @2", got)
	}
}

// A client that knows the id may use the lease.
func TestLeaseIDFromAnywhere(t *testing.T) {
	d := startDaemon(t, 3, nil)
	a, b := d.dial(), d.dial()
	lease := a.Say("LOCK a ttl=2s", granted5)[0]
	b.Say("CHECK lease="+lease, granted5)
	b.Say("CHECK b lease="+lease, `ERR NOTHELD lock=b : .*`)
	if ttl := duration(t, b.Say("EXTEND lease="+lease+" ttl=20s", granted5)[1]); ttl < 15*time.Second {
		t.Errorf("EXTEND ttl=20s: %v are left", ttl)
	}
	b.Say("EXTEND lease="+lease+" ttl=31s", `ERR OPTION .*`)
	b.Say("UNLOCK lease="+lease, `OK lock=a`)
	a.Say("CHECK a", `ERR NOTHELD .*`)
	b.Say("UNLOCK lease="+lease, `ERR NOTHELD .*`)
}

// EXTEND does not shorten a lease, and needs no ttl=. HELP, and so the manual, and PROTOCOL.md say
// so.
func TestExtendShortensNothing(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Say("LOCK a hold=ttl ttl=20s", granted5)
	for _, request := range []string{"EXTEND a ttl=1s", "EXTEND a"} {
		if left := duration(t, w.Say(request, granted5)[1]); left < 15*time.Second {
			t.Errorf("%s: %v are left, want the rest of 20s", request, left)
		}
	}
	w.Say("HELP EXTEND", `- : EXTEND name\[,name...\] \[ttl=\] .*`)
	w.Want(`- : .*default of ttl=: the ttl that it has`)
	w.Want(`- : a smaller ttl= does not move the deadline back: .*`)
	w.Want(`- : mode=shared: makes an exclusive lease a shared one.*`)
	w.Want(`OK n=4`)
	page := readTestFile(t, "../../packaging/docs/PROTOCOL.md")
	if !strings.Contains(page, "`EXTEND name[,name…] [ttl=] [mode=shared]`") || !strings.Contains(page, "A smaller ttl does not shorten the lease now") {
		t.Error("PROTOCOL.md differs from HELP EXTEND")
	}
}

// No answer to another client shows the lease id, with which it could release the lock.
func TestLeaseIDStaysSecret(t *testing.T) {
	d := startDaemon(t, 3, nil)
	a, b := d.dial(), d.dial()
	lease := a.Say("LOCK a note=two%20words", granted5)[0]
	for _, request := range []string{"LIST", "WHO a", "STATUS", "TRY a"} {
		b.Send("%s", request)
		for {
			line := b.Line()
			if strings.Contains(line, lease) {
				t.Errorf("%s shows the lease id: %s", request, line)
			}
			if !strings.HasPrefix(line, "-") {
				break
			}
		}
	}
	b.Say("WHO a", `- lock=a mode=exclusive host=\S+ pid=\d+ user=\S+ since=\d+ ttl=\d+ held=\d nodes=\d note=two%20words`)
	b.Want(`OK n=1`)
	b.Say("LIST", `- lock=a state=held mode=exclusive pid=\d+ user=\S+ since=\d+ note=two%20words fence=\d+ ttl=\d+`)
	b.Want(`OK n=1`)
}

func TestStatus(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Say("LOCK a", granted5)
	w.Send("STATUS")
	for _, node := range []string{"a", "b", "c"} {
		w.Want(`- node=` + node + ` address=unix:\S+ state=ready wakeups=\w+ rtt=\d+ write=\d+ persistence=none`)
	}
	w.Want(`OK n=3 nodes=3 quorum=2 spare=1 leases=1 waiters=0 connections=1 max_ttl=30000 grants=1 lost=0 handovers=0 passes=0 splits=0 wakeups=0 writebacks=\d repairs=0 quarantines=0 clock_jumps=0 withdrawals=0 counter_losses=0 : .*`)
	d.Nodes.Servers[1].Kill()
	w.Until("STATUS", `- node=b address=\S+ state=down .*: .+(?s:.*)spare=0`)
}
