package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// openLogged opens a journal, and returns it with its log. complete is Recovered.Complete.
func openLogged(socket string) (j *Journal, complete bool, log *strings.Builder) {
	log = new(strings.Builder)
	j = NewJournal(hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info}))
	recovered := j.Open(Options{Socket: socket, KeyPrefix: "redlock:", Nodes: []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
	return j, recovered.Complete, log
}

// The health of a journal that could not be opened says why. The fix differs.
func TestHealthOfAJournalThatIsNotOpen(t *testing.T) { // not in parallel: it changes a variable of the package
	defer func(file string) { bootIDFile = file }(bootIDFile)
	for _, test := range []struct {
		folder, boot string
		want         Health
		text         string
	}{
		{"nowhere", "open_test.go", Unopened, "its state file could not be opened at its start, and only a restart retries that: its log says why"},
		{"", "/nowhere/boot_id", NoBootID, "it cannot read which boot this is in /nowhere/boot_id"},
	} {
		bootIDFile = test.boot
		j, _, _ := openLogged(filepath.Join(t.TempDir(), test.folder, "s"))
		if got := j.Health(); got != test.want || got.Text() != test.text || j.IsOpen() {
			t.Errorf("got %q: %s; want %q: %s", got, got.Text(), test.want, test.text)
		}
	}
}

// A daemon that cannot read the boot id removes the state file of the earlier daemon: it is soon out
// of date, and the next daemon would trust it.
func TestNoStateFileWithoutABootID(t *testing.T) { // not in parallel: it changes a variable of the package
	defer func(file string) { bootIDFile = file }(bootIDFile)
	socket := filepath.Join(t.TempDir(), "s")
	for _, boot := range []string{bootIDFile, "/nowhere/boot_id"} {
		bootIDFile = boot
		j, _, _ := openLogged(socket)
		files, err := filepath.Glob(statefile.PathFor(socket) + ".*")
		if isThere := len(files) > 0; err != nil || isThere != j.IsOpen() {
			t.Errorf("boot in %s: found %v, %v; the journal is open: %v", boot, files, err, j.IsOpen())
		}
		j.Close()
	}
}

// A state file is valid for the same boot, clock, key_prefix and nodes, in any order.
func TestSameIdentity(t *testing.T) {
	const ours = formatVersion + "\nthis boot\nredlock:\na\nb\nc"
	for found, want := range map[string]string{
		ours: "",
		formatVersion + "\nthis boot\nredlock:\nc\na\nb":          "",
		formatVersion + "\nthis boot\nredlock:\na\nb":             "other nodes or another key_prefix",
		formatVersion + "\nthis boot\nredlock:\na\nb\nd":          "other nodes or another key_prefix",
		formatVersion + "\nthis boot\na\nredlock:\nb\nc":          "other nodes or another key_prefix",
		formatVersion + "\nanother boot\nredlock:\na\nb\nc":       "rebooted",
		formatVersion + "\nthis boot + 1000 0\nredlock:\na\nb\nc": "another time namespace",
		"another format\nthis boot\nredlock:\na\nb\nc":            "another version",
		formatVersion: "another version",
	} {
		err := sameIdentity([]byte(found), []byte(ours))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("identity %q: %v, want %q", found, err, want)
		}
	}
}

// While nodes are joining or leaving, a config has two lists. A state file is valid for a config that
// has one of them.
func TestIdentityInAChange(t *testing.T) {
	identity := func(nodes ...string) []byte {
		o := Options{KeyPrefix: "redlock:"}
		for _, name := range nodes {
			o.Nodes = append(o.Nodes, Node{Name: name[:1], Joining: strings.HasSuffix(name, "+"), Leaving: strings.HasSuffix(name, "-")})
		}
		id, err := o.identity()
		if err != nil {
			t.Skip(err)
		}
		return id
	}
	old, joint, after := identity("a", "b"), identity("b", "a-", "c+"), identity("c", "b")
	for what, pair := range map[string][2][]byte{"begins": {old, joint}, "is undone": {joint, old}, "ends": {joint, after}, "ends too early": {after, joint}, "goes on": {joint, joint}} {
		if err := sameIdentity(pair[0], pair[1]); err != nil {
			t.Errorf("the change %s: %v", what, err)
		}
	}
	for what, pair := range map[string][2][]byte{"skips": {old, after}, "another": {identity("a", "b-"), joint}} {
		if err := sameIdentity(pair[0], pair[1]); (err != nil) != (what == "skips") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := sameIdentity(identity("a", "x-"), identity("b", "y+")); err == nil {
		t.Error("a state file of two other lists is valid")
	}
}

// The process ids in a state file mean nothing in another PID namespace. The leases of these
// processes are there, but no process is taken for their holder.
func TestStateFileOfAnotherPIDNamespace(t *testing.T) { // not in parallel: it changes a variable of the package
	defer func(f func() string) { pidNamespace = f }(pidNamespace)
	socket := filepath.Join(t.TempDir(), "s")
	lease := Lease{Number: 1, Life: locktable.Life{State: locktable.Held}, Record: redlock.Record{Names: []string{"a"}, Token: "token", TTL: time.Second}, Holder: Holder{PID: 7, Hold: ipc.HoldPID}}
	for i, test := range []struct {
		namespace string
		want      int
	}{
		{"pid:[1]", 7}, {"pid:[1]", 7}, {"pid:[2]", 0}, {"pid:[2]", 7}, {"", 0}, {"pid:[2]", 7}, // the file before is of a system without /proc
	} {
		pidNamespace = func() string { return test.namespace }
		j := NewJournal(hclog.NewNullLogger())
		got := j.Open(Options{Socket: socket, KeyPrefix: "redlock:", Nodes: []Node{{Name: "a"}}})
		if l := got.Leases[1]; (l == nil) != (i == 0) || l != nil && l.Holder.PID != test.want {
			t.Errorf("%d, in %q: got %+v, want process %d", i, test.namespace, l, test.want)
		}
		j.Lease(&lease, 1)
		j.Close()
	}
}

// Instants in one time namespace are wrong in another one, so a state file is not used there.
func TestStateFileOfAnotherClock(t *testing.T) { // not in parallel: it changes a variable of the package
	defer func(file string) { timeOffsetsFile = file }(timeOffsetsFile)
	timeOffsetsFile = filepath.Join(t.TempDir(), "timens_offsets")
	socket := filepath.Join(t.TempDir(), "s")
	for _, test := range []struct {
		offsets string
		want    bool // the earlier state file is valid, or there is none
	}{
		{"monotonic           0         0\nboottime            0         0\n", true},
		{"monotonic        1000         0\nboottime            0         0\n", true},
		{"monotonic           0         0\nboottime           -5         0\n", false},
		{"monotonic           0         0\nboottime           -5         0\n", true},
		{"monotonic           0         0\nboottime            0 500000000\n", false},
		{"", false}, // a kernel without time namespaces
		{"", true},
	} {
		if err := os.WriteFile(timeOffsetsFile, []byte(test.offsets), 0o600); err != nil {
			t.Fatal(err)
		}
		j, got, log := openLogged(socket)
		j.Close()
		if got != test.want || !got && !strings.Contains(log.String(), "another time namespace") {
			t.Errorf("with %q: %v, want %v (log: %s)", test.offsets, got, test.want, log.String())
		}
	}
}

// The log warns if the state file is on a disk, because the daemon would wait for the disk.
func TestStateFileOnDiskIsLogged(t *testing.T) { // not in parallel: it changes a variable of the package
	defer func(is func(string) bool) { onDisk = is }(onDisk)
	for _, is := range []bool{false, true} {
		onDisk = func(string) bool { return is }
		j, _, log := openLogged(filepath.Join(t.TempDir(), "s"))
		j.Close()
		if said := strings.Contains(log.String(), "[WARN]  the state file is on a disk"); said != is {
			t.Errorf("on a disk: %v; logged: %v (log: %s)", is, said, log.String())
		}
	}
}

// The journal is healthy again when the state file can be written again.
func TestHealthAfterAFailure(t *testing.T) {
	j := NewJournal(hclog.NewNullLogger())
	for _, err := range []error{errors.New("no space left on device"), nil} {
		j.failed(err)
		want := map[bool]Health{true: Unwritten, false: Healthy}[err != nil]
		if got := j.Health(); got != want {
			t.Errorf("the state file failed with %v: %q, want %q", err, got, want)
		}
	}
}
