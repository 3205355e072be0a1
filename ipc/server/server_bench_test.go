package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkServerRoundTrip sends one line at a time and waits for its answer.
func BenchmarkServerRoundTrip(b *testing.B) {
	d := startFake(b, nil)
	nc := d.dial(b)
	line, answer := []byte("@a1 PING\n"), make([]byte, len("@a1 OK\n"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answer); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServerPipelined counts lines while 100 are in flight.
func BenchmarkServerPipelined(b *testing.B) {
	const n = 100
	d := startFake(b, nil)
	nc := d.dial(b)
	lines, answers := bytes.Repeat([]byte("@a1 PING\n"), n), make([]byte, n*len("@a1 OK\n"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(lines); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answers); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkServerWorks keeps 64 requests in flight. A worker answers each one.
func BenchmarkServerWorks(b *testing.B) {
	const n = 64
	d := startFake(b, func(d *fakeDaemon) {
		d.Open = func(c *Conn) (Session, error) { return &working{fakeSession{d, c}}, nil }
	})
	nc := d.dial(b)
	var lines []byte
	for i := range n {
		lines = fmt.Appendf(lines, "@a%d PING\n", i)
	}
	r := bufio.NewReader(nc)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(lines); err != nil {
			b.Fatal(err)
		}
		for range n {
			if _, err := r.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "lines/s")
}

type working struct{ fakeSession }

func (w *working) Begin(call *Call) Work { return (*answering)(call) }

type answering Call

func (a *answering) Run() {
	call := (*Call)(a)
	call.Reply(call.OK())
}

// TestIdleConnectionsAreSmall measures the Go memory of connections that were used and are idle. It
// does not measure the kernel's memory.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const n, most = 2000, 14 << 10 // bytes a connection; 4 KiB of them are the race detector's
	raiseFileLimit(t, 2*n+100)
	d := newFake()
	d.conns = make([]*Conn, 0, n)
	before := runtimeMemory()
	clients := make([]*os.File, n)
	var serving sync.WaitGroup
	for i := range clients {
		client, server := socketPair(t)
		clients[i] = client
		serving.Go(func() { d.ServeConn(server) })
	}
	for _, client := range clients {
		exchange(t, client, "@a WHO x\nLICK\nPING\n", "ERR VERB")
	}
	each := (int64(runtimeMemory()) - int64(before)) / n
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("an idle connection holds %d bytes, want %d at most", each, most)
	}
	for _, client := range clients {
		client.Close()
	}
	serving.Wait()
}

// raiseFileLimit skips the test if the limit of open files cannot be raised to n.
func raiseFileLimit(t *testing.T, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max < n {
		t.Skipf("%d open files are not allowed here (%v)", n, err)
	}
}

// socketPair returns a client that is a plain file, without the memory of a net.Conn, and the
// server's end.
func socketPair(t testing.TB) (*os.File, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "client"), connOf(t, fds[1])
}

// connOf makes a net.Conn of a socket's descriptor, and takes ownership of it.
func connOf(t testing.TB, fd int) net.Conn {
	t.Helper()
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	nc, err := net.FileConn(file) // duplicates the descriptor
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// exchange sends lines, and reads until all answers have come, in any order.
func exchange(t *testing.T, client *os.File, lines, want string) {
	t.Helper()
	if _, err := client.WriteString(lines); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 1024)
	for bytes.Count(got, []byte("\n")) < 6 {
		n, err := client.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Contains(got, []byte(want)) {
		t.Errorf("got %q", got)
	}
}

// runtimeMemory is the size of heap and stacks after a collection.
func runtimeMemory() uint64 {
	runtime.GC()
	runtime.GC() // the first one only retires what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
