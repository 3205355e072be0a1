package daemon

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// Why nothing is noted from the start on is told apart: what helps is not the same.
func TestUnnotedFromTheStart(t *testing.T) { // not beside others: it changes where all look
	defer func(file string) { bootIDFile = file }(bootIDFile)
	for _, test := range []struct {
		folder, boot string
		want         unnoted
		text         string
	}{
		{"nowhere", "ledger_open_test.go", unopened, "its table could not be begun, which is not tried again before a restart: its log says why"},
		{"", "/nowhere/boot_id", noBoot, "which boot this is cannot be read in /nowhere/boot_id"},
	} {
		bootIDFile = test.boot
		d, closeNodes := embeddedDaemon(t, io.Discard)
		d.openLedger(filepath.Join(t.TempDir(), test.folder, "s"))
		if got := unnoted(d.unnoted.Load()); got != test.want || got.text() != test.text {
			t.Errorf("got %q: %s; want %q: %s", got, got.text(), test.want, test.text)
		}
		d.nodes.Close()
		closeNodes()
	}
}

// A daemon that cannot tell which boot this is leaves no table of an earlier one: what that
// says is not true for long, and the next daemon would believe it.
func TestTableWithoutABoot(t *testing.T) { // not beside others: it changes where all look
	defer func(file string) { bootIDFile = file }(bootIDFile)
	socket := filepath.Join(t.TempDir(), "s")
	for _, boot := range []string{bootIDFile, "/nowhere/boot_id"} {
		bootIDFile = boot
		d, closeNodes := embeddedDaemon(t, io.Discard)
		d.openLedger(socket)
		files, err := filepath.Glob(statefile.Beside(socket) + ".*")
		if isThere := len(files) > 0; err != nil || isThere != (d.ledger != nil) {
			t.Errorf("boot in %s: found %v, %v; goes on with it: %v", boot, files, err, d.ledger != nil)
		}
		d.ledger.leave()
		d.nodes.Close()
		closeNodes()
	}
}

// A table is of use to who has the same nodes, in whatever order his config has them.
func TestSameOwner(t *testing.T) {
	const ours = tableFormat + "\nthis boot\nredlock:\na\nb\nc"
	for found, want := range map[string]string{
		ours: "",
		tableFormat + "\nthis boot\nredlock:\nc\na\nb":          "",
		tableFormat + "\nthis boot\nredlock:\na\nb":             "others now",
		tableFormat + "\nthis boot\nredlock:\na\nb\nd":          "others now",
		tableFormat + "\nthis boot\na\nredlock:\nb\nc":          "others now",
		tableFormat + "\nanother boot\nredlock:\na\nb\nc":       "booted",
		tableFormat + "\nthis boot + 1000 0\nredlock:\na\nb\nc": "another time namespace",
		"another format\nthis boot\nredlock:\na\nb\nc":          "another version",
		tableFormat: "another version",
	} {
		err := sameOwner([]byte(found), []byte(ours))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: %v, want %q", found, err, want)
		}
	}
}

// Instants of a time namespace are none of this host's: a table from one is not used
// beyond it, nor one of the host in it.
func TestTableOfAnotherClock(t *testing.T) { // not beside others: it changes where all look
	defer func(file string) { timeOffsetsFile = file }(timeOffsetsFile)
	timeOffsetsFile = filepath.Join(t.TempDir(), "timens_offsets")
	socket := filepath.Join(t.TempDir(), "s")
	for _, test := range []struct {
		offsets string
		want    bool // the table of the one before is used, or there is none
	}{
		{"monotonic           0         0\nboottime            0         0\n", true},
		{"monotonic        1000         0\nboottime            0         0\n", true},
		{"monotonic           0         0\nboottime           -5         0\n", false},
		{"monotonic           0         0\nboottime           -5         0\n", true},
		{"monotonic           0         0\nboottime            0 500000000\n", false},
		{"", false}, // of a kernel that has no such namespaces
		{"", true},
	} {
		if err := os.WriteFile(timeOffsetsFile, []byte(test.offsets), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		d, closeNodes := embeddedDaemon(t, &log)
		_, got := d.openLedger(socket)
		d.ledger.leave()
		d.nodes.Close() // nobody logs any more
		closeNodes()
		if got != test.want || !got && !strings.Contains(log.String(), "another time namespace") {
			t.Errorf("with %q: %v, want %v (log: %s)", test.offsets, got, test.want, log.String())
		}
	}
}

// A table on a disk has the whole daemon wait for that: it is said, and where it is of
// memory nothing is.
func TestTableOnDiskIsSaid(t *testing.T) { // not beside others: it changes where all look
	defer func(is func(string) bool) { onDisk = is }(onDisk)
	for _, is := range []bool{false, true} {
		onDisk = func(string) bool { return is }
		var log strings.Builder
		d, closeNodes := embeddedDaemon(t, &log)
		d.openLedger(filepath.Join(t.TempDir(), "s"))
		d.ledger.leave()
		d.nodes.Close() // nobody logs any more
		closeNodes()
		if said := strings.Contains(log.String(), "[WARN]  the table is on a disk"); said != is {
			t.Errorf("on a disk: %v; said: %v (log: %s)", is, said, log.String())
		}
	}
}
