package daemon

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
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

// A table is of use to who has the same nodes, in whatever order his config has them.
func TestSameOwner(t *testing.T) {
	const ours = tableFormat + "\nthis boot\nredlock:\na\nb\nc"
	for found, want := range map[string]string{
		ours: "",
		tableFormat + "\nthis boot\nredlock:\nc\na\nb":    "",
		tableFormat + "\nthis boot\nredlock:\na\nb":       "others now",
		tableFormat + "\nthis boot\nredlock:\na\nb\nd":    "others now",
		tableFormat + "\nthis boot\na\nredlock:\nb\nc":    "others now",
		tableFormat + "\nanother boot\nredlock:\na\nb\nc": "booted",
		"another format\nthis boot\nredlock:\na\nb\nc":    "another version",
		tableFormat: "another version",
	} {
		err := sameOwner([]byte(found), []byte(ours))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: %v, want %q", found, err, want)
		}
	}
}
