package session

import (
	"slices"
	"strings"
	"testing"
)

// A writer who waits for the readers of his host is not overtaken by those of
// another: the nodes know of him before he asks them. Where he gives up, they go
// on at once.
func TestWriterIsKnownBeforeItsTurn(t *testing.T) {
	here := startDaemon(t, 3, patientNodes)
	there := here.another()
	first, second, writer, other := here.dial(), here.dial(), here.dial(), there.dial()
	first.say("LOCK a mode=shared", `OK .*`)
	second.say("LOCK a mode=shared", `OK .*`)
	other.say("TRY a mode=shared", `OK .*`)
	other.say("UNLOCK a", `OK .*`)

	writer.send("@w LOCK a")
	other.refused(t)
	other.say("TRY a mode=shared", `ERR HELD lock=a .*waiting=yes.*`)
	other.send("@r LOCK a mode=shared")
	first.say("UNLOCK a", `OK .*`)
	second.say("UNLOCK a", `OK .*`)
	writer.want(`@w OK .*`)
	writer.say("UNLOCK a", `OK .*`)
	other.want(`@r OK .*`)
	other.say("UNLOCK a", `OK .*`)

	first.say("LOCK a mode=shared", `OK .*`)
	writer.send("@w LOCK a ttl=30s") // what is not taken back lasts for longer than the test
	other.refused(t)
	other.send("@r LOCK a mode=shared")
	writer.send("CANCEL w")
	answers := []string{writer.line(), writer.line()} // in either order
	slices.Sort(answers)
	matches(t, answers[0], `@w ERR CANCELLED.*`)
	other.want(`@r OK .*`)
}

// However long he waits: what the nodes know of him lasts for his ttl, and is renewed.
func TestWriterStaysKnown(t *testing.T) {
	t.Parallel() // it mostly waits
	here := startDaemon(t, 3, patientNodes)
	there := here.another()
	reader, writer, other := here.dial(), here.dial(), there.dial()
	reader.say("LOCK a mode=shared", `OK .*`)
	writer.send("@w LOCK a ttl=1500ms")
	other.refused(t)
	other.say("LOCK clock hold=ttl ttl=2500ms guard=1", granted5)
	other.want(`LOST lock=clock .*`)
	other.say("TRY a mode=shared", `ERR HELD lock=a .*waiting=yes.*`)
	reader.say("UNLOCK a", `OK .*`)
	writer.want(`@w OK .*`)
}

// refused asks for a reader's place until there is none.
func (w *wire) refused(t *testing.T) {
	t.Helper()
	eventually(t, "the nodes know of the writer", func() bool {
		if strings.HasPrefix(w.say("TRY a mode=shared", `(.*)`)[0], "ERR HELD") {
			return true
		}
		w.say("UNLOCK a", `OK .*`)
		return false
	})
}
