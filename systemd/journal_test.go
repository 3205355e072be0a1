package systemd

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// JOURNAL_STREAM may describe the stderr of the parent process, which is another file here.
func TestStderrIsJournal(t *testing.T) {
	var stderr unix.Stat_t
	if err := unix.Fstat(2, &stderr); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{
		fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino):   true,
		fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino+1): false,
		"":     false,
		"8:no": false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		if got := StderrIsJournal(); got != want {
			t.Errorf("JOURNAL_STREAM=%q: got %t, want %t", stream, got, want)
		}
	}
}
