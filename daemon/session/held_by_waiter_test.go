package session

import (
	"testing"
)

// heldBehindWaiter is the answer to a client that is behind a waiter, which does not hold the lock
// either.
func heldBehindWaiter(lock, why string) string {
	return `ERR HELD lock=` + lock + ` waiting=yes ` + holderWords + ` : ` + lock + `: \S+ on \S+ \(pid \d+\) asked earlier, ` + why
}

// A client that is refused because of an earlier waiter learns this, and what that waiter waits
// for, however short its own wait was.
func TestHeldBehindAWaiter(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, both, last, look := d.dial(), d.dial(), d.dial(), d.dial()
	holder.Say("LOCK n1", granted5)
	both.sendWaiting(look, "LOCK n1,n2", 1)
	held := heldBehindWaiter(`n2`, `and waits for n1, which \S+ \(pid \d+\) holds`)
	look.Say("TRY n2", held)
	look.Say("LOCK n2 wait=20ms", held)
	look.Say("TRY n2 mode=shared", held)
	look.Say("TRY n2 slots=3", held)
	last.sendWaiting(look, "LOCK n2,n3", 2)
	look.Say("TRY n3", heldBehindWaiter(`n3`, `and waits for n2, which \S+ \(pid \d+\) asked for earlier`))
	holder.Say("UNLOCK n1", `OK lock=n1`)
	both.Want(granted(`n1,n2`))
	look.Say("TRY n2", `ERR HELD lock=n2 ttl=\d+ `+holderWords+` : .*held by.*`)
}

// If one of several names is held, the answer says which one, and who holds it.
func TestHeldNamesTheBlockedName(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, both, look := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK n2,n3", granted5)
	held := `ERR HELD lock=n1,n3,n2,n4 blocked=n[23] ttl=\d+ ` + holderWords + ` : n[23]: held by .*`
	look.Say("TRY n1,n3,n2,n4", held)
	look.Say("LOCK n1,n3,n2,n4 wait=20ms", held)
	both.sendWaiting(look, "LOCK n1,n2", 1)
	look.Say("TRY n4,n1", `ERR HELD lock=n4,n1 blocked=n1 waiting=yes `+holderWords+` : n1: \S+ on \S+ \(pid \d+\) asked earlier, and waits for n2, .*`)
	other := d.another()
	other.dial().Say("TRY n4,n3,n2", `ERR HELD lock=n4,n3,n2 blocked=n2 ttl=\d+ `+holderWords+` : n2: held by .*`)
}

// If the holder has a slot, the answer does not say that the lock is shared.
func TestHeldBehindAWaiterForSlots(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, alone, look := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a slots=3", grantedSlot)
	alone.sendWaiting(look, "LOCK a", 1)
	look.Say("TRY a slots=3", heldBehindWaiter(`a`, `and waits for a, which \S+ \(pid \d+\) holds`))
}
