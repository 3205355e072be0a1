package term

import (
	"bytes"
	"os"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// A terminal that does not report its size gets the usual one. Otherwise nothing would be shown.
func TestScreenWithoutSize(t *testing.T) {
	_, slave := cmdtest.OpenTerminal(t)
	defer slave.Close()
	if s, ok := ScreenOf(slave); !ok || s != (screen{80, 24}) {
		t.Errorf("the screen is %v, %v, want 80 columns and 24 rows", s, ok)
	}
}

func TestPaint(t *testing.T) {
	var out bytes.Buffer
	screen{5, 3}.Paint(&out, []byte("äöüß long\nb\nnot shown\n"), true)
	want := ClearScreen + CursorHome + "äöüß " + ClearLine + "\nb" + ClearLine + "\n" + ClearBelow
	if got := out.String(); got != want {
		t.Errorf("painted %q, want %q", got, want)
	}
}

func TestColumns(t *testing.T) {
	_, slave := cmdtest.OpenTerminal(t)
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if got := Columns(slave); got != 80 {
		t.Errorf("a terminal of unknown width has %d columns, want 80", got)
	}
	if got := Columns(w); got != 0 {
		t.Errorf("a pipe has %d columns, want 0", got)
	}
	if !Writable(w) {
		t.Error("an empty pipe is not writable")
	}
	cmdtest.FillPipe(t, w)
	if Writable(w) {
		t.Error("a full pipe is writable")
	}
}
