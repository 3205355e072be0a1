package state

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// openJournal opens the journal of a daemon with this socket.
func openJournal(t testing.TB, socket string) (*Journal, *Recovered) {
	t.Helper()
	j := NewJournal(hclog.NewNullLogger())
	recovered := j.Open(Options{Socket: socket, KeyPrefix: "redlock:", Nodes: []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
	if !j.IsOpen() {
		t.Skip("the state file needs Linux")
	}
	return j, recovered
}

// BenchmarkJournal measures the six records of a LOCK and its UNLOCK, and merging them.
func BenchmarkJournal(b *testing.B) {
	j, _ := openJournal(b, filepath.Join(b.TempDir(), "s"))
	conn := j.NextNumber()
	j.ConnOpened(conn, true)
	lease := redlock.Record{Names: []string{"bench-12"}, Token: "k3Ud9PqzRw5nXyTg host 4711 0 root 1795247588294", TTL: 10 * time.Second}
	lock, unlock := []byte("@17 LOCK bench-12"), []byte("@18 UNLOCK bench-12")
	b.ReportAllocs()
	for b.Loop() {
		number := j.NextNumber()
		j.RequestBegun(&Request{Number: number, Conn: conn, Since: redlock.BootTime(), Line: lock}, nil)
		j.Lease(&Lease{Number: number, Record: lease}, 0)
		held := Lease{Number: number, Life: locktable.Life{State: locktable.Held}, Record: lease, Conn: conn, Holder: Holder{PID: 4711, User: "root", Since: time.Hour}}
		held.Record.Fence, held.Record.Deadline, held.Record.Since = 1<<50, time.Hour, time.Hour
		j.Lease(&held, number)
		release := j.NextNumber()
		j.RequestBegun(&Request{Number: release, Conn: conn, Since: redlock.BootTime(), Line: unlock}, nil)
		held.Life.State, held.ReleasedBy = locktable.Releasing, release
		j.Lease(&held, 0)
		j.Forgotten(number, release)
	}
	b.StopTimer()
	j.Close()
}
