package daemon

import (
	"io"
	"path/filepath"
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
