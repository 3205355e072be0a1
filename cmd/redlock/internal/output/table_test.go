package output

import (
	"testing"
	"time"
)

func TestFine(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "-", 143256: "143µs", 1243256: "1.24ms", 12432560: "12.4ms", 2345678901: "2.35s", 999: "999ns"} {
		if got := PreciseDuration(d); got != want {
			t.Errorf("fine(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", 1234 * time.Microsecond: "1ms", 1260 * time.Millisecond: "1.3s", 61400 * time.Millisecond: "1m1s", -1: "-",
	} {
		if got := Duration(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{"a b": "a b", "ümlaut": "ümlaut", "\x1b[2J": `"\x1b[2J"`, "a\tb": `"a\tb"`, "\u202e": `"\u202e"`} {
		if got := Cell(text); got != want {
			t.Errorf("cell(%q) = %s, want %s", text, got, want)
		}
	}
}
