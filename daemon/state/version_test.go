package state

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// A daemon reads the state file of the earlier version, and writes it in the new format. A daemon
// with the first format wrote testdata/table-1.gz.
func TestStateFileOfTheEarlierVersion(t *testing.T) { // not in parallel: it changes variables of the package
	defer func(boot, offsets string) { bootIDFile, timeOffsetsFile = boot, offsets }(bootIDFile, timeOffsetsFile)
	dir := t.TempDir()
	bootIDFile, timeOffsetsFile = filepath.Join(dir, "boot_id"), filepath.Join(dir, "none")
	if err := os.WriteFile(bootIDFile, []byte("an old boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Socket: filepath.Join(dir, "s"), KeyPrefix: "redlock:", Nodes: []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	unpack(t, "testdata/table-1.gz", statefile.PathFor(o.Socket)+".1")

	record := redlock.Record{Names: []string{"a", "b"}, Token: "token", Fence: 5, TTL: time.Second, Guard: 200 * time.Millisecond, Deadline: 1000, End: 5000, Since: 10, Keep: true}
	holder := Holder{UID: 1000, PID: 4, User: "u", Owner: "o", Note: "n", ID: "i", Since: 7, Hold: ipc.HoldPID, Linger: 2, Beat: 3, ProcessStarted: 4}
	want := Recovered{
		Conns:    map[uint64]*Conn{1: {Number: 1, Stored: true}},
		Requests: map[uint64]*Request{4: {Number: 4, Conn: 1, Since: 8, Line: []byte("LOCK c")}},
		Leases: map[uint64]*Lease{
			2: {Number: 2, Phase: PhaseHeld, Record: record, Conn: 1, Holder: holder},
			3: {Number: 3, Phase: PhaseReleased, Record: record, Conn: 1, ReleasedBy: 77},
			4: {Number: 4, Phase: PhaseAcquiring, Record: redlock.Record{Names: []string{"c"}, Token: "other", TTL: time.Second}},
			5: {Number: 5, Phase: PhaseLost, Record: record, Conn: 1, Reason: redlock.LostForced, Reported: true},
		},
		Complete: true, lastNumber: 5,
	}
	for _, file := range []string{"of the earlier version", "of this one"} {
		j := NewJournal(hclog.NewNullLogger())
		got := *j.Open(o)
		j.Close()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("from the file %s: got %+v, want %+v", file, got, want)
		}
	}
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(content)
	if err == nil {
		err = os.WriteFile(to, all, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
