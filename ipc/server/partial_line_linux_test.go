package server

import (
	"runtime"
	"testing"
	"time"
)

// notes is how much was noted.
func (t *table) notes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.log)
}

// awaitNotes waits until so much was noted.
func (t *table) awaitNotes(n int) {
	for end := time.Now().Add(patience); t.notes() < n && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// The beginning of a line that is taken from the socket is noted behind the lines that
// wait for their turn, and until it is there, as one to be skipped.
func TestPartialLineIsRecordedAfterQueue(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	say(t, s.nc, "LOCK x\nPING\nLI")
	d.waiting(t, "x")
	tab.awaitNotes(4)
	tab.hearLog(t, "asked LOCK x", `rest "PING\n"`, `rest "PING\n" skipping`, `rest "PING\nLI"`)
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
	close(d.channel(d.gates, "x"))
	d2, _ := tab.restart(t, s.dup)
	say(t, s.nc, "ST\n")
	close(d2.channel(d2.gates, "x"))
	hear(t, s.nc, "OK lock=x\nOK\nOK\n")
}

// So it is where a line comes in many parts: each is noted behind those before it, which
// are to be skipped with it until then.
func TestPartialLineIsRecordedAgain(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	for i, part := range []string{"LI", "S", "T"} {
		say(t, s.nc, part)
		tab.awaitNotes(2 * (i + 1))
	}
	tab.hearLog(t, `rest "" skipping`, `rest "LI"`, `rest "" skipping`, `rest "LIS"`, `rest "" skipping`, `rest "LIST"`)
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
	tab.restart(t, s.dup)
	say(t, s.nc, "\nPING\n")
	hear(t, s.nc, "OK\nOK\n")
}
