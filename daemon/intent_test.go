package daemon

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

// The nodes are told of a writer only where nobody is in his way but who holds and
// shares the lock: they would refuse readers of this host, too, who stand before him.
func TestNear(t *testing.T) {
	reader, writer := kind{shared: true}, kind{}
	q := newQueue()
	stand := func(k kind) *place {
		p := &place{patient: true}
		p.set([]string{"a"}, k, &asker{})
		p.owner.name = "owner" + string(rune('a'+q.searches))
		q.searches++
		if err := q.join(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	near := func(p *place) bool { return p.near != nil && isClosed(p.near) }
	first, second := stand(reader), stand(reader)
	w, behind, last := stand(writer), stand(reader), stand(writer)
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"two readers ask", func() {}, false},
		{"one holds", func() { q.hold(first, &holding{}) }, false},
		{"both hold", func() { q.hold(second, &holding{}) }, true},
	} {
		if step.do(); near(w) != step.want {
			t.Errorf("%s: the writer is near: %v, want %v", step.what, near(w), step.want)
		}
	}
	if near(last) || near(behind) {
		t.Error("who stands behind the writer is near, too")
	}
	q.leave(first, nil)
	q.leave(second, nil)
	q.hold(w, &holding{})
	if near(last) {
		t.Error("a writer is near where the lock is held by one alone")
	}
}

// A reader who gives up, rather than hold, is in nobody's way either: the nodes are told of
// the writer then.
func TestNearWhenAReaderGivesUp(t *testing.T) {
	q := newQueue()
	all := line(q, reader, reader, kind{})
	holds, asks, writer := all[0], all[1], all[2]
	q.hold(holds, &holding{})
	if isClosed(writer.near) {
		t.Error("the writer is near while a reader asks")
	}
	if q.leave(asks, nil); !isClosed(writer.near) {
		t.Error("the reader gave up, and the writer is not near")
	}
}

// Nor are they told of one who shares the lock himself: of who wants a slot.
func TestNearIsWhoWantsItAlone(t *testing.T) {
	q := newQueue()
	all := line(q, reader, three)
	if q.hold(all[0], &holding{}); all[1].near != nil {
		t.Error("one who wants a slot is near")
	}
}

// A writer who waits for another writer alone is not near: nobody could overtake him; who
// waits for readers at one of his names is, whoever has the others.
func TestNearWhereSomethingIsShared(t *testing.T) {
	q := newQueue()
	all := line(q, kind{}, kind{})
	if q.hold(all[0], &holding{}); isClosed(all[1].near) {
		t.Error("a writer is near where the lock is held by one alone")
	}
	q = newQueue()
	shares, alone, both := newKindPlace(reader, "a"), newPlace("b"), newPlace("a", "b")
	for _, p := range []*place{shares, alone, both} {
		q.join(p)
	}
	q.hold(shares, &holding{})
	if q.hold(alone, &holding{}); !isClosed(both.near) {
		t.Error("a writer is not near where one of his names is shared")
	}
}
