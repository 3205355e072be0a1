package flags

import (
	"testing"
	"time"
)

func TestDurationValue(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, ".25": 250 * time.Millisecond,
		"250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute, "2m": 2 * time.Minute, "1e3": 1000 * time.Second,
	} {
		var d time.Duration
		if err := Duration(&d).Set(word); err != nil || d != want {
			t.Errorf("%q is %v, %v, want %v", word, d, err, want)
		}
	}
	for _, word := range []string{"", "-1", "-1s", "5 s", "5d", "NaN", "inf", "1e300", "soon"} {
		d := time.Duration(7)
		if err := Duration(&d).Set(word); err == nil || d != 7 {
			t.Errorf("%q is taken for %v", word, d)
		}
	}
}
