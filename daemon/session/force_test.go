package session

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// FORCE revokes the holder's lease and sends it LOST. The waiter gets the lock at once, and not at
// the holder's deadline.
func TestForce(t *testing.T) {
	d := startDaemon(t, 3, nil)
	admin, holder, waiter := d.dial(), d.dial(), d.dial()
	admin.Say("FORCE a", `OK lock=a n=0 : .*`)
	holder.Say("LOCK a ttl=20s", granted5)
	waiter.Send("LOCK a ttl=20s wait=10s")
	admin.Until("LIST", `state=waiting`)
	admin.Say("FORCE a", `OK lock=a n=1 held=\d host=\S+ pid=\d+ user=\S+ since=\d+ : .*`)
	holder.Want(`LOST lock=a lease=\S+ reason=forced : .*`)
	waiter.Want(granted5)
	holder.Say("UNLOCK a", `ERR LOST lock=a reason=forced : .*`)
	admin.Say("WHO a", `- lock=a .*`)
}

// A holder on another host gets LOST later. A foreign client never gets it.
func TestForcedText(t *testing.T) {
	d := &Host{hostname: "web1"}
	for host, want := range map[string]string{
		"web1": "the holder is notified, but",
		"web2": "the holder is notified when its host next extends the lease, or with hold=ttl at its deadline",
		"":     "another Redlock client",
	} {
		if got := d.forcedText(redlock.Holder{Host: host}); !strings.HasPrefix(got, want) {
			t.Errorf("holder on host %q: %q, want %q", host, got, want)
		}
	}
}
