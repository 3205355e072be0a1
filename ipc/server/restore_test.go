package server

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/ipc"
)

// pipeRestored restores one end of a pipe from the table.
func pipeRestored(t *testing.T, tab *table) (*fakeDaemon, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	d := tab.daemon()
	tab.restore(t, &d.Server, there)
	return d, here
}

// endPipe closes the client's end and waits until the server has ended the session.
func endPipe(t *testing.T, d *fakeDaemon, nc net.Conn) {
	t.Helper()
	nc.Close()
	d.hearEnds(t, "input gone=true", "close")
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// Restored requests without a tag begin one after the other, before lines that were read after
// them. They keep their numbers.
func TestRestoreKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.open = map[uint64]string{4: "LOCK x", 5: "@a LOCK y", 6: "UNLOCK z", 9: "WHO x"}
		tab.last, tab.rest = 9, "PING\n@b PING\nLICK\n@c PI"
		d, nc := pipeRestored(t, tab)
		hear(t, nc, "@b OK\n")
		say(t, nc, "NG\n")
		hear(t, nc, "@c OK\n")
		synctest.Wait()
		tab.hearLog(t, "rest \"PING\\n\"", "rest \"PING\\nLICK\\n@c PI\"", "rest \"PING\\nLICK\\n\"")
		close(d.channel(d.gates, "x"))
		hear(t, nc, "OK lock=x\nOK lock=z\n- i=0\n- i=1\n- i=2\nOK n=3\nOK\n"+
			"ERR VERB : \"LICK\" is not a verb: HELP lists them\n")
		synctest.Wait()
		tab.mu.Lock()
		noted := slices.DeleteFunc(tab.log, func(what string) bool { return strings.HasPrefix(what, "rest") })
		tab.log = nil
		tab.mu.Unlock()
		if want := []string{"answered 4", "answered 6", "answered 9"}; !slices.Equal(noted, want) {
			t.Errorf("noted %q, want %q", noted, want)
		}
		if want := map[uint64]string{5: "@a LOCK y"}; !maps.Equal(tab.open, want) || tab.rest != "" {
			t.Errorf("open are %v, and the rest is %q", tab.open, tab.rest)
		}
		endPipe(t, d, nc)
	})
}

// If the request before a waiting one was just answered, a new request without a tag does not
// overtake the waiting one.
func TestRestoreOvertakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		d := newTable().daemon()
		r, err := d.Restore(there)
		if err != nil {
			t.Fatal(err)
		}
		for number, name := range []string{"x", "y", "z"} {
			if name == "z" {
				close(d.channel(d.gates, "x"))
				synctest.Wait() // waits for the answer to x
				close(d.channel(d.gates, "z"))
			}
			r.Begin(uint64(number+1), []byte("LOCK "+name))
		}
		r.Serve(nil, false)
		hear(t, here, "OK lock=x\n")
		synctest.Wait()
		close(d.channel(d.gates, "y"))
		hear(t, here, "OK lock=y\nOK lock=z\n")
		endPipe(t, d, here)
	})
}

// Restored requests with a tag run concurrently. They wait neither for a request without a tag nor
// for each other.
func TestRestoreSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.open = map[uint64]string{1: "LOCK x", 2: "LOCK y", 3: "@a LOCK z", 4: "@b PING"}
		tab.last = 4
		d, nc := pipeRestored(t, tab)
		hear(t, nc, "@b OK\n")
		close(d.channel(d.gates, "z"))
		hear(t, nc, "@a OK lock=z\n")
		close(d.channel(d.gates, "x"))
		close(d.channel(d.gates, "y"))
		hear(t, nc, "OK lock=x\nOK lock=y\n")
		endPipe(t, d, nc)
	})
}

// The server still skips a line that it was skipping before the restart, after the lines of the
// queue.
func TestRestoreSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.rest, tab.skip = "PING\nLIST\n", true
		d, nc := pipeRestored(t, tab)
		hear(t, nc, "OK\nOK\n")
		say(t, nc, "QUIT\x00", " \n@a PING\n")
		hear(t, nc, "@a OK\n")
		endPipe(t, d, nc)
	})
}

// A line that is too long is skipped, even if the server reads its rest only after the restart.
func TestRestoreTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1250 // 10,000 bytes
		tab := newTable()
		tab.rest = strings.Repeat("@a PING\n", n) + "@b " + strings.Repeat("x", 8000) + "\n@c PI"
		d, nc := pipeRestored(t, tab)
		hear(t, nc, strings.Repeat("@a OK\n", n)+"@b "+lineTooLong)
		say(t, nc, "NG\n")
		hear(t, nc, "@c OK\n")
		endPipe(t, d, nc)
	})
}

// The unread bytes exceed the size of one read.
func TestRestoreLongRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4000
		tab := newTable()
		tab.open, tab.last = map[uint64]string{1: "LOCK x"}, 1
		tab.rest = strings.Repeat("PING\n", n) + "@a PI"
		d, nc := pipeRestored(t, tab)
		synctest.Wait()
		if tab.rest != strings.Repeat("PING\n", n)+"@a PI" {
			t.Errorf("%d bytes of the rest are noted", len(tab.rest))
		}
		close(d.channel(d.gates, "x"))
		hear(t, nc, "OK lock=x\n"+strings.Repeat("OK\n", n))
		say(t, nc, "NG\n")
		hear(t, nc, "@a OK\n")
		endPipe(t, d, nc)
		if len(tab.rest) > 0 || tab.added > 15*n {
			t.Errorf("the rest is %.100q in the end, and took %d bytes of notes", tab.rest, tab.added)
		}
	})
}

// If the client closed while no daemon was running, its requests are cancelled and its session
// ends.
func TestRestoreAfterClientClosed(t *testing.T) {
	tab := newTable()
	tab.open, tab.last = map[uint64]string{1: "LOCK x", 2: "@a LOCK y"}, 2
	client, server := socketPair(t)
	client.Close()
	d := tab.daemon()
	r := tab.restore(t, &d.Server, server)
	r.Conn().Send(new(ipc.Response).Notice(ipc.EventBack))
	d.hearEnds(t, "input gone=true", "close")
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if len(tab.open) > 0 {
		t.Errorf("open are still %v", tab.open)
	}
	checkNoGoroutines(t)
}

// After the restart, the parser or a stopping server refuses a request. That answer is recorded as
// well.
func TestRestoreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		here, there := net.Pipe()
		heard := new(bytes.Buffer)
		over := make(chan struct{})
		go func() {
			defer close(over)
			heard.ReadFrom(here)
		}()
		tab.open = map[uint64]string{1: "LOCK x old=1", 2: "LOCK x", 3: "LOCK y"}
		r, err := d.Restore(there)
		if err != nil {
			t.Fatal(err)
		}
		r.Begin(1, []byte("LOCK x old=1"))
		r.Begin(2, []byte("LOCK x"))
		r.Begin(3, []byte("LOCK y"))
		down := make(chan error)
		go func() { down <- d.Shutdown(t.Context(), nil) }()
		synctest.Wait()
		r.Begin(4, []byte("@a LOCK z"))
		r.Serve([]byte("PING\n@b PI"), false)
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-over
		for _, want := range []string{"ERR OPTION", "\nERR SHUTDOWN", "@a ERR SHUTDOWN"} {
			if !strings.Contains(heard.String(), want) {
				t.Errorf("%q is not in %q", want, heard)
			}
		}
		if n := strings.Count(heard.String(), "\n"); n != 5 {
			t.Errorf("%d answers, want 5: %q", n, heard)
		}
		if len(tab.open) > 0 {
			t.Errorf("open are still %v", tab.open)
		}
	})
}

// If Open fails, the client gets the error, and the connection ends.
func TestRestoreOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.Open = func(*Conn) (Session, error) { return nil, ipc.Errorf(ipc.CodeLimit, "limits.connections is 0") }
		here, there := net.Pipe()
		var refused *ipc.Error
		if _, err := d.Restore(there); !errors.As(err, &refused) || refused.Code != ipc.CodeLimit {
			t.Errorf("Restore: %v", err)
		}
		hearEnd(t, here, "ERR LIMIT : limits.connections is 0\n")
		if err := d.Shutdown(t.Context(), nil); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// If the server freezes while a connection is being restored, no request begins.
func TestRestoreThenFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		here, there := net.Pipe()
		r, err := d.Restore(there)
		if err != nil {
			t.Fatal(err)
		}
		frozen := make(chan error)
		go func() { frozen <- d.Freeze(t.Context(), FreezeOptions{Keep: keepAll}) }()
		synctest.Wait()
		r.Begin(1, []byte("LOCK x"))
		r.Serve([]byte("PING\nPI"), false)
		if err := <-frozen; err != nil {
			t.Errorf("Freeze: %v", err)
		}
		synctest.Wait()
		tab.hearLog(t)
		here.Close()
	})
}
