package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// numberedLines returns n numbered lines of many lengths.
func numberedLines(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "OK n=%d %s\n", i, strings.Repeat("x", i*i%700))
	}
	return []byte(b.String())
}

// If the client does not read, the server still writes whole lines only. So after a kill -9 the
// next process can write BACK after them.
func TestOutputWritesWholeLines(t *testing.T) {
	file, server := socketPair(t)
	defer file.Close()
	defer server.Close()
	all := numberedLines(5000)
	o := output{conn: server, raw: rawOf(server), timeout: time.Millisecond}
	read := make([]byte, 50_000)
	for sent := 0; sent < len(all)/2; {
		n, err := o.writeSome(all[sent:])
		if err != nil {
			t.Fatal(err)
		}
		wantWhole(t, all, sent+n)
		sent += n
		if n, err = file.Read(read[:1+sent*7%len(read)]); err != nil {
			t.Fatal(n, err)
		}
	}
}

func wantWhole(t *testing.T, all []byte, sent int) {
	t.Helper()
	if sent > 0 && all[sent-1] != '\n' {
		t.Fatalf("%d bytes were taken, which ends in %q", sent, all[max(0, sent-30):sent])
	}
}

// slowWrites is a connection that records the size of each write.
type slowWrites struct {
	net.Conn
	sizes []int
}

func (w *slowWrites) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return w.Conn.Write(b)
}

// The same for the goroutine that writes while the client is slow. In the end everything is
// written.
func TestOutputWritesWholeLinesSlowly(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	all := numberedLines(1000)
	w := &slowWrites{Conn: there}
	o := output{conn: w}
	go func() {
		defer there.Close()
		o.writeAll(all)
	}()
	hearEnd(t, here, string(all))
	sent := 0
	for _, n := range w.sizes {
		if sent += n; n > maxWrite {
			t.Errorf("%d bytes were written at once, more than %d", n, maxWrite)
		}
		wantWhole(t, all, sent)
	}
}

// dueWrites is a connection that records its write deadlines.
type dueWrites struct {
	net.Conn
	due time.Time
}

func (w *dueWrites) SetWriteDeadline(due time.Time) error {
	w.due = due
	return w.Conn.SetWriteDeadline(due)
}

// What a socket does not take at once (here the rest of a chunk and the next chunk) is written
// once, later. The output then reports that it is written, and later output has the full timeout
// again.
func TestOutputGoesOnSlowly(t *testing.T) {
	file, server := socketPair(t)
	defer file.Close()
	defer server.Close()
	var writing sync.WaitGroup
	var ended atomic.Int32
	w := &dueWrites{Conn: server}
	o := output{conn: w, raw: rawOf(server), limit: 16 << 20, timeout: patience, spawn: writing.Go,
		othersAnswer: func() bool { return false },
		onIdle:       func() { ended.Add(1) },
		onFailure:    func(err error) { t.Error(err) },
	}
	var r ipc.Response
	o.append(nil, r.OK(""))
	if ended.Load() != 1 {
		t.Errorf("ended was called %d times for one end of writing", ended.Load())
	}
	all := numberedLines(5000)
	o.cork()
	o.append(all, r.OK(""))
	o.uncork() // writes as much as fits
	o.append(all, r.OK(""))
	go func() {
		writing.Wait()
		server.Close()
	}()
	got, err := io.ReadAll(file)
	once := string(all) + "OK\n"
	compare(t, string(got), "OK\n"+once+once, err)
	if ended.Load() != 2 || !w.due.IsZero() || o.size.Load() != 0 {
		t.Errorf("ended was called %d times, want 2; due %v; %d bytes are left", ended.Load(), w.due, o.size.Load())
	}
}
