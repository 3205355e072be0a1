package session

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
)

// grantedAs is an OK of LOCK: its lease and its fencing token.
const grantedAs = `OK lock=\S+ lease=(\S+) fence=(\d+) .*`

// unlocked is an OK of UNLOCK: a quorum of nodes has answered.
const unlocked = `OK lock=a`

// passing is a succession in which a lock was passed on. last is the client that got it by the
// pass.
type passing struct {
	*succession
	last, look *wire
	first      []string // lease and fencing token of the grant whose token the nodes show
	grant      []string // of last
}

// passedOn passes a lock "a" on. options belong to the last LOCK. A host that is too busy for the
// window hands the lock over instead; then passedOn retries.
func passedOn(t *testing.T, options string) *passing {
	t.Helper()
	s := newSuccessionWith(t, daemontest.Patience) // no node fails here, however busy the host is
	p := &passing{succession: s, last: s.dial(), look: s.dial()}
	w, next := s.dial(), s.dial()
	daemontest.Eventually(t, "the lock is passed on", func() bool {
		w.Say("LOCK a ttl=20s", granted5)
		next.sendWaiting(p.look, "LOCK a ttl=20s", 1)
		p.last.sendWaiting(p.look, "LOCK a ttl=20s "+options, 2)
		w.Say("UNLOCK a", unlocked)
		p.first = next.Want(grantedAs)
		next.Say("UNLOCK a", unlocked)
		p.grant = p.last.Want(grantedAs)
		if s.d.Nodes.Status().Counts.Passes == 1 {
			return true
		}
		p.last.Say("UNLOCK a lease="+p.grant[0], unlocked)
		return false
	})
	return p
}

func fenceOf(t *testing.T, grant []string) uint64 {
	t.Helper()
	fence, err := strconv.ParseUint(grant[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

// A lock that is passed on is a new grant: its id and fencing token are new, and the id of the
// previous grant is no longer valid.
func TestPass(t *testing.T) {
	p := passedOn(t, "")
	if p.grant[0] == p.first[0] || fenceOf(t, p.grant) != fenceOf(t, p.first)+1 {
		t.Errorf("lease and fence %v after %v: want another lease, and the next fence", p.grant, p.first)
	}
	for _, request := range []string{"CHECK a", "EXTEND a", "UNLOCK a", "RESUME a"} {
		p.look.Say(request+" lease="+p.first[0], `ERR NOTHELD .*`)
	}
	p.last.Say("CHECK a lease="+p.grant[0], `OK lock=a lease=`+p.grant[0]+` fence=`+p.grant[1]+` .*`)
	p.look.Until("STATUS", `handovers=[1-9]\d* passes=1 `)
	p.look.Say("LIST", `- lock=a state=held .* fence=`+p.grant[1]+` .*`)
	p.look.Want(`OK n=1`)
	p.last.Say("UNLOCK a", unlocked)
	p.look.Until("WHO a", `OK n=0`)
}

// WHO shows the present holder, although the nodes still show the previous one.
func TestWhoAfterAPass(t *testing.T) {
	c := newChild(t, os.Getuid())
	p := passedOn(t, fmt.Sprintf("note=passed hold=pid pid=%d", c.pid))
	p.look.Say("WHO a", fmt.Sprintf(`- lock=a mode=exclusive host=\S+ pid=%d .* note=passed.*`, c.pid))
	p.look.Want(`OK n=1`)
	p.look.Say("FORCE a", fmt.Sprintf(`OK lock=a n=1 held=\d host=\S+ pid=%d .*`, c.pid))
	p.last.Want(`LOST lock=a lease=` + p.grant[0] + ` reason=forced .*`)
}

// A restart keeps a lock that was passed on, with the last grant. Later grants have larger fencing
// tokens.
func TestPassOutlastsTheDaemon(t *testing.T) {
	for _, killed := range []bool{false, true} {
		p := passedOn(t, "")
		next := p.dial()
		next.sendWaiting(p.look, "LOCK a", 1)
		if killed {
			p.found = func(found *state.Recovered) { keepReleased(t, found, p) }
		}
		p.end()
		p.start(p.last, p.look, next)
		for _, w := range []*wire{p.last, p.look, next} {
			w.Want(`BACK .*`)
		}
		p.last.Say("CHECK a", `OK lock=a lease=`+p.grant[0]+` fence=`+p.grant[1]+` .*`)
		p.look.Say("CHECK a lease="+p.first[0], `ERR NOTHELD .*`)
		p.last.Say("UNLOCK a", unlocked)
		if grant := next.Want(grantedAs); fenceOf(t, grant) <= fenceOf(t, p.grant) {
			t.Errorf("killed %v: fence %s after %s, want a larger one", killed, grant[1], p.grant[1])
		}
	}
}

// keepReleased adds the record of the previous grant. A kill before that record was deleted leaves
// it.
func keepReleased(t *testing.T, found *state.Recovered, p *passing) {
	t.Helper()
	for number, l := range found.Leases {
		if l.Life.State == locktable.Held && l.Record.Grant == p.grant[0] {
			released := *l
			released.Life.State, released.Record.Grant, released.Record.Fence = locktable.Releasing, "", l.Record.Fence-1
			released.Number = number - 1
			found.Leases[released.Number] = &released
			return
		}
	}
	t.Errorf("the passed grant is not among the records %v", found.Leases)
}

// The daemon passes no lock on to a client that is gone: it releases the lock, and the next waiter
// gets it.
func TestNoPassToAClientThatIsGone(t *testing.T) {
	p := passedOn(t, "")
	gone, next := p.dial(), p.dial()
	gone.sendWaiting(p.look, "LOCK a", 1)
	next.sendWaiting(p.look, "LOCK a", 2)
	gone.EndInput()
	gone.Want(`ERR CANCELLED .*`)
	p.last.Say("UNLOCK a", unlocked)
	next.Want(grantedAs)
	next.Say("UNLOCK a", unlocked)
	p.look.Until("WHO a", `OK n=0`)
}

// pidOnNodes returns the process that the nodes show as the holder of "a", or 0 if there is none.
func (p *passing) pidOnNodes() int {
	p.t.Helper()
	shown, err := p.d.Nodes.Who(p.t.Context(), "a")
	if err != nil || len(shown) > 1 {
		p.t.Fatal(shown, err)
	}
	for _, h := range shown {
		return h.Holder.PID
	}
	return 0
}

// Half a second after a pass, the nodes have a token that names the client, so another host's WHO
// shows it. The lease stays the same, for the next daemon too.
func TestWhoOfAnotherHostAfterAPass(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, killed := range []bool{false, true} {
		c := newChild(t, os.Getuid())
		p := passedOn(t, fmt.Sprintf("note=passed hold=pid pid=%d", c.pid))
		daemontest.Eventually(t, "the nodes name the client", func() bool { return p.pidOnNodes() == c.pid })
		p.last.Say("CHECK a", `OK lock=a lease=`+p.grant[0]+` fence=`+p.grant[1]+` .*`)
		if killed {
			former := 0
			p.found = func(found *state.Recovered) {
				for _, l := range found.Leases {
					if l.Life.State == locktable.Held && l.Record.Former != "" {
						former++
					}
				}
			}
			p.end()
			p.start(p.last, p.look)
			p.last.Want(`BACK .*`)
			p.look.Want(`BACK .*`)
			if former != 1 {
				t.Errorf("the state file has %d leases with a former token, want 1", former)
			}
			p.last.Say("CHECK a", `OK lock=a lease=`+p.grant[0]+` fence=`+p.grant[1]+` .*`)
		}
		p.look.Say("WHO a", fmt.Sprintf(`- lock=a mode=exclusive host=\S+ pid=%d .* note=passed.*`, c.pid))
		p.look.Want(`OK n=1`)
		p.last.Say("UNLOCK a", unlocked)
		p.look.Until("WHO a", `OK n=0`)
	}
}
