package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

const deadlock = `ERR DEADLOCK lock=(\S+) : (.*)`

// sendWaiting sends a LOCK, and returns when n clients wait.
func (w *wire) sendWaiting(look *wire, request string, n int) {
	w.T.Helper()
	w.Send("%s", request)
	look.Until("STATUS", fmt.Sprintf(`waiters=%d\b`, n))
}

// The LOCK that closes a cycle is refused at once. Its answer lists the holder and the waiter of
// each lock. The client keeps what it holds.
func TestDeadlock(t *testing.T) {
	d := startDaemon(t, 3, nil)
	x, y, look := d.dial(), d.dial(), d.dial()
	x.Say("LOCK a owner=me", granted5)
	y.Say("LOCK b", granted5)
	x.sendWaiting(look, "LOCK b owner=me", 1)
	text := y.Say("LOCK a wait=10s", deadlock)[1]
	const who = `\S+ \(pid \d+\)`
	const me = `\S+ \(pid \d+, owner me\)`
	daemontest.Matches(t, text, `a: deadlock: `+who+` waits for a, which `+me+` holds; `+me+` waits for b, which `+who+` holds: release .*`)
	look.Until("STATUS", `leases=2 waiters=1\b`)
	y.Say("CHECK b", granted5)
	y.Say("UNLOCK b", `OK lock=b`)
	x.Want(granted5)
	y.sendWaiting(look, "LOCK a", 1)
	x.Say("UNLOCK a owner=me", `OK lock=a`)
	y.Want(granted5)
}

// Each client holds one lock, and waits for the next client's.
func TestDeadlockOfThree(t *testing.T) {
	d := startDaemon(t, 3, nil)
	look := d.dial()
	var ring []*wire
	for i, name := range []string{"a", "b", "c"} {
		ring = append(ring, d.dial())
		ring[i].Say("LOCK "+name, granted5)
	}
	ring[0].sendWaiting(look, "LOCK b", 1)
	ring[1].sendWaiting(look, "LOCK c", 2)
	text := ring[2].Say("LOCK a", deadlock)[1]
	for _, step := range []string{"waits for a", "waits for b", "waits for c"} {
		if strings.Count(text, step) != 1 {
			t.Errorf("want %q exactly once in: %s", step, text)
		}
	}
	if !strings.HasPrefix(text, "a: ") || strings.Index(text, "waits for b") > strings.Index(text, "waits for c") {
		t.Errorf("want a cycle that begins with the refused LOCK: %s", text)
	}
	ring[2].Conn.Close()
	ring[1].Want(granted5)
	ring[1].Conn.Close()
	ring[0].Want(granted5)
}

// An earlier waiter gets the lock first, so the cycle can lead through a waiter as through a
// holder.
func TestDeadlockThroughWaiter(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, x, y, look := d.dial(), d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	y.Say("LOCK b", granted5)
	x.sendWaiting(look, "@1 LOCK a", 1)
	x.sendWaiting(look, "@2 LOCK b", 2)
	daemontest.Matches(t, y.Say("LOCK a", deadlock)[1], `a: .* waits for a, which .* asked for earlier; .* waits for b, which .* holds: .*`)
	holder.Say("UNLOCK a", `OK lock=a`)
	x.Want(`@1 ` + granted5)
	y.Say("UNLOCK b", `OK lock=b`)
	x.Want(`@2 ` + granted5)
}

// A deadlock is between owners, not connections.
func TestDeadlockIsBetweenOwners(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, look := d.dial(), d.dial()
	w.Say("LOCK a owner=1", granted5)
	w.Say("LOCK b owner=2", granted5)
	w.sendWaiting(look, "@1 LOCK b owner=1", 1)
	w.sendWaiting(look, "@3 LOCK a owner=3", 2) // holds nothing
	w.Say("@2 LOCK a owner=2", `@2 `+deadlock)
	answers(w, "UNLOCK b owner=2", `OK lock=b`, `@1 `+granted5)
	w.sendWaiting(look, "@2 LOCK a owner=2", 2)
	answers(w, "UNLOCK a owner=1", `OK lock=a`, `@3 `+granted5)
	answers(w, "UNLOCK a owner=3", `OK lock=a`, `@2 `+granted5)
}

// There is no cycle if a client does not wait, no longer waits, or no longer holds the lock.
func TestNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		x, y, look := d.dial(), d.dial(), d.dial()
		x.Say("LOCK a", granted5)
		y.Say("LOCK b", granted5)
		x.sendWaiting(look, "@1 LOCK b", 1)
		y.Say("TRY a", `ERR HELD .*`)
		y.Say("LOCK a wait=0", `ERR HELD .*`)
		answers(x, "CANCEL 1", `OK`, `@1 ERR CANCELLED .*`)
		y.sendWaiting(look, "@1 LOCK a", 1) // x no longer waits
		x.Say("TRY b", `ERR HELD .*`)
		x.Say("UNLOCK a", `OK lock=a`)
		y.Want(`@1 ` + granted5)
		x.sendWaiting(look, "@1 LOCK b", 1) // and x no longer holds a
		y.Say("UNLOCK a", `OK lock=a`)
		y.Say("UNLOCK b", `OK lock=b`)
		x.Want(`@1 ` + granted5)

		z := d.dial()
		z.Say("LOCK c hold=ttl ttl=2s", granted5)
		y.sendWaiting(look, "@1 LOCK c", 1)
		z.Conn.Close() // its lease stays, but waits for nothing
		look.Until("STATUS", `connections=3\b`)
		y.Say("LOCK d", granted5)
		x.sendWaiting(look, "@2 LOCK d", 2)
		y.Want(`@1 ` + granted5)
	})
}

// A lost lease stays in the wait queue until its deadline, and then leaves, whatever its owner
// waits for. So its owner may wait for the same lock again, behind the other waiters.
func TestDeadlockWithALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		x, y, look := d.dial(), d.dial(), d.dial()
		y.Say("LOCK b", granted5)
		deadline := duration(t, x.Say("LOCK a ttl=4s max=4s guard=2s", granted5)[2])
		y.sendWaiting(look, "@1 LOCK a", 1)
		x.Want(`LOST lock=a .* reason=max : .*`)
		x.sendWaiting(look, "@1 LOCK b", 2)
		x.sendWaiting(look, "@2 LOCK a", 3)
		y.Want(`@1 ` + granted5)
		if now := d.now(); now < deadline {
			t.Errorf("granted at %v, before the deadline %v", now, deadline)
		}
		y.Say("UNLOCK a", `OK lock=a`)
		x.Want(`@2 ` + granted5)
		y.Say("UNLOCK b", `OK lock=b`)
		x.Want(`@1 ` + granted5)
	})
}

// A ring of LOCKs is sent at once. Exactly one is refused. When that client releases its lock, all
// others are granted.
func TestDeadlockAtTheSameMoment(t *testing.T) {
	d := startDaemon(t, 1, nil)
	for _, n := range []int{2, 2, 2, 2, 2, 5, 5, 9} {
		var ring []*wire
		for i := range n {
			ring = append(ring, d.dial())
			ring[i].Say(fmt.Sprint("LOCK ring-", i), granted5)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for i, w := range ring {
			wg.Go(func() {
				defer w.Conn.Close() // which releases its locks
				w.Send("LOCK ring-%d", (i+1)%n)
				if strings.HasPrefix(w.Line(), "ERR DEADLOCK") {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if refused != 1 {
			t.Errorf("ring of %d: %d LOCKs refused, want 1", n, refused)
		}
	}
}

// A LOCK that was refused does not count towards the limits.
func TestDeadlockedLockIsNotCounted(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 4, 2 })
	x, y, look := d.dial(), d.dial(), d.dial()
	x.Say("LOCK a", granted5)
	y.Say("LOCK b", granted5)
	x.sendWaiting(look, "LOCK b", 1)
	for range 3 {
		y.Say("LOCK a", deadlock)
	}
	y.Say("UNLOCK b", `OK lock=b`)
	x.Want(granted5)
}

// Readers do not wait for each other, but a writer waits for all of them.
func TestDeadlockOfReaders(t *testing.T) {
	d := startDaemon(t, 3, nil)
	x, y, z, look := d.dial(), d.dial(), d.dial(), d.dial()
	for _, w := range []*wire{x, y} { // both hold both
		w.Say("LOCK a mode=shared", granted5)
		w.Say("LOCK b mode=shared", granted5)
	}
	z.Say("LOCK c", granted5)
	z.sendWaiting(look, "@1 LOCK a", 1)
	for _, w := range []*wire{x, y} {
		daemontest.Matches(t, w.Say("LOCK c mode=shared", deadlock)[1], `c: .* waits for c, which .* holds; .* waits for a, which .* holds: .*`)
	}
	x.Say("UNLOCK a", `OK lock=a`)
	x.sendWaiting(look, "LOCK c", 2)
	y.Say("UNLOCK a", `OK lock=a`)
	z.Want(`@1 ` + granted5)
	z.Say("UNLOCK c", `OK lock=c`)
	x.Want(granted5)
}

// The search does not follow a client that waits for a slot. A LOCK that closes such a cycle waits.
func TestNoDeadlockOfSlots(t *testing.T) {
	d := startDaemon(t, 3, nil)
	x, y, z, look := d.dial(), d.dial(), d.dial(), d.dial()
	x.Say("LOCK a slots=2", grantedSlot)
	y.Say("LOCK a slots=2", grantedSlot)
	z.Say("LOCK b", granted5)
	z.sendWaiting(look, "@1 LOCK a slots=2", 1)
	x.sendWaiting(look, "@1 LOCK b", 2)
	y.sendWaiting(look, "@1 LOCK b", 3)
	y.Say("@2 UNLOCK a", `@2 OK lock=a`)
	z.Want(`@1 ` + grantedSlot)
	z.Say("UNLOCK b", `OK lock=b`)
	x.Want(`@1 ` + granted5)
}

// A LOCK of several names waits for each of them.
func TestDeadlockOfSeveralNames(t *testing.T) {
	d := startDaemon(t, 3, nil)
	x, y, look := d.dial(), d.dial(), d.dial()
	x.Say("LOCK a,b", granted(`a,b`))
	y.Say("LOCK c", granted5)
	y.sendWaiting(look, "@1 LOCK d,b", 1)
	daemontest.Matches(t, x.Say("LOCK e,c", `ERR DEADLOCK lock=e,c : (.*)`)[0], `c: .* waits for c, which .* holds; .* waits for b, which .* holds: .*`)
	x.Say("TRY e", granted5)
	x.Say("UNLOCK a,b", `OK lock=a,b`)
	y.Want(`@1 ` + granted(`d,b`))
}

// A lease with hold=ttl ends by itself, because nobody extends it. A client that waits for it is in
// no deadlock, whatever the lease's owner waits for.
func TestNoDeadlockWithHoldTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		x, y, look := d.dial(), d.dial(), d.dial()
		x.Say("LOCK a hold=ttl ttl=1s", granted5)
		y.Say("LOCK b", granted5)
		x.sendWaiting(look, "LOCK b", 1)
		y.Say("LOCK a wait=10s", granted5) // it gets the lock when the lease expires
		y.Say("UNLOCK b", `OK lock=b`)
		for line := x.Line(); ; line = x.Line() { // LOST may come first
			if line[:2] == "OK" {
				break
			}
		}
	})
}

// The reported cycle contains only clients that can never continue, and not a client that waits for a
// slot: another holder may release one.
func TestDeadlockNamesOnlyStuckClients(t *testing.T) {
	d := startDaemon(t, 3, nil)
	m, free, continues, stuck, look := d.dial(), d.dial(), d.dial(), d.dial(), d.dial()
	m.Say("LOCK T slots=2", grantedSlot)
	m.Say("LOCK x", granted5)
	free.Say("LOCK T slots=2", grantedSlot)
	continues.Say("LOCK l1", granted5)
	stuck.Say("LOCK l2", granted5)
	continues.sendWaiting(look, "LOCK T slots=2", 1)
	stuck.sendWaiting(look, "LOCK x", 2)
	m.Say("LOCK l1,l2", `ERR DEADLOCK lock=l1,l2 : [^;]* waits for l2, which [^;]* holds; [^;]* waits for x, which [^;]* holds: .*`)
}

// A client does not count as stuck if the search finds only later that the clients before it can
// continue.
func TestNoDeadlockBehindClientsThatContinue(t *testing.T) {
	d := startDaemon(t, 3, nil)
	m, free, first, second, look := d.dial(), d.dial(), d.dial(), d.dial(), d.dial()
	for _, w := range []*wire{m, free, second} {
		w.Say("LOCK T slots=3", grantedSlot)
	}
	first.Say("LOCK y", granted5)
	first.Say("LOCK l1", granted5)
	second.Say("LOCK l2", granted5)
	m.Say("LOCK U slots=2", grantedSlot)
	free.Say("LOCK U slots=2", grantedSlot)
	first.sendWaiting(look, "LOCK T slots=3", 1)
	second.sendWaiting(look, "@1 LOCK y", 2)
	second.sendWaiting(look, "@2 LOCK U slots=2", 3)
	m.sendWaiting(look, "LOCK l1,l2", 4)
	free.Say("UNLOCK U", `OK lock=U`)
	second.Want(`@2 ` + grantedSlot)
	free.Say("UNLOCK T", `OK lock=T`)
	first.Want(grantedSlot)
	first.Say("UNLOCK y", `OK lock=y`)
	second.Want(`@1 ` + granted5)
	first.Say("UNLOCK l1", `OK lock=l1`)
	second.Say("UNLOCK l2", `OK lock=l2`)
	m.Want(granted(`l1,l2`))
}
