package session

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// Readers of another host do not overtake a writer that waits for the readers of its own host. It
// enters the nodes' queues before it asks for the lock. If it leaves, readers can lock at once.
func TestWaitingWriterStopsReadersOfAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := startSims(t, 3, longNodeTimeout)
		there := here.another()
		first, second, writer, other := here.dial(), here.dial(), here.dial(), there.dial()
		first.Say("LOCK a mode=shared", `OK .*`)
		second.Say("LOCK a mode=shared", `OK .*`)
		other.Say("TRY a mode=shared", `OK .*`)
		other.Say("UNLOCK a", `OK .*`)

		writer.Send("@w LOCK a")
		other.awaitReaderRefused(t)
		other.Say("TRY a mode=shared", `ERR HELD lock=a .*waiting=yes.*`)
		time.Sleep(time.Second) // so that its ticket is later, although hosts estimate the nodes' clocks to some ms
		other.Send("@r LOCK a mode=shared")
		first.Say("UNLOCK a", `OK .*`)
		second.Say("UNLOCK a", `OK .*`)
		writer.Want(`@w OK .*`)
		writer.Say("UNLOCK a", `OK .*`)
		other.Want(`@r OK .*`)
		other.Say("UNLOCK a", `OK .*`)

		first.Say("LOCK a mode=shared", `OK .*`)
		writer.Send("@w LOCK a ttl=30s") // an entry that is not removed outlasts the test
		other.awaitReaderRefused(t)
		other.Send("@r LOCK a mode=shared")
		writer.Send("CANCEL w")
		answers := []string{writer.Line(), writer.Line()} // in either order
		slices.Sort(answers)
		daemontest.Matches(t, answers[0], `@w ERR CANCELLED.*`)
		other.Want(`@r OK .*`)
	})
}

// The entry of a waiting writer outlasts the writer's ttl.
func TestWaitingWriterKeepsItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := startSims(t, 3, longNodeTimeout)
		there := here.another()
		reader, writer, other := here.dial(), here.dial(), there.dial()
		reader.Say("LOCK a mode=shared", `OK .*`)
		writer.Send("@w LOCK a ttl=1500ms")
		other.awaitReaderRefused(t)
		other.Say("LOCK clock hold=ttl ttl=2500ms guard=1", granted5)
		other.Want(`LOST lock=clock .*`)
		other.Say("TRY a mode=shared", `ERR HELD lock=a .*waiting=yes.*`)
		reader.Say("UNLOCK a", `OK .*`)
		writer.Want(`@w OK .*`)
	})
}

// awaitReaderRefused locks and unlocks as a reader until it is refused.
func (w *wire) awaitReaderRefused(t *testing.T) {
	t.Helper()
	daemontest.Eventually(t, "the nodes have the entry of the writer", func() bool {
		if strings.HasPrefix(w.Say("TRY a mode=shared", `(.*)`)[0], "ERR HELD") {
			return true
		}
		w.Say("UNLOCK a", `OK .*`)
		return false
	})
}
