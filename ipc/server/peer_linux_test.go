package server

import (
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPeerGroups: a process has few groups, none, or more than the first attempt reads. The groups
// at the time of connecting count.
func TestPeerGroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have other groups")
	}
	d := startFake(t, nil)
	many := make([]uint32, 1000)
	for i := range many {
		many[i] = uint32(100 + i) // sorted, as the kernel keeps them
	}
	for _, want := range [][]uint32{nil, {7}, {7, 4711}, many[:32], many[:33], many} {
		nc := dialWithGroups(t, d.path, want)
		say(t, nc, "PING\n")
		hear(t, nc, "OK\n")
		if got := d.lastConn().Peer().Groups; !slices.Equal(got, want) {
			t.Errorf("got %d groups %v, want %d: %v", len(got), got, len(want), want)
		}
	}
}

func (d *fakeDaemon) lastConn() *Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns[len(d.conns)-1]
}

func dialWithGroups(t *testing.T, path string, groups []uint32) net.Conn {
	t.Helper()
	conns := make(chan net.Conn, 1)
	go func() {
		defer close(conns)
		runtime.LockOSThread() // no unlock: the thread has these groups, and ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); errno != 0 {
			t.Error("setgroups:", errno)
			return
		}
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		conns <- nc
	}()
	nc, ok := <-conns
	if !ok {
		t.FailNow()
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}
