package server

import (
	"runtime"
	"testing"
	"time"
)

// notes returns the number of log entries.
func (t *table) notes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.log)
}

// awaitNotes waits until the log has n entries.
func (t *table) awaitNotes(n int) {
	for end := time.Now().Add(patience); t.notes() < n && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// A partial line that is taken from the socket is recorded after the lines of the queue. Until its
// bytes are recorded, the record says that the line is to be skipped.
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

// If a line comes in many parts, each part is recorded after the parts before it. Until then the
// record says that the whole line is to be skipped.
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
