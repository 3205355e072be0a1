package doctor

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestClockFindings(t *testing.T) {
	for what, test := range map[string]struct {
		state int
		clock unix.Timex
		want  []string
	}{
		"synchronised":      {unix.TIME_OK, unix.Timex{Tick: 10_000, Freq: 500 << 16}, nil},
		"slewed by 1 %":     {unix.TIME_OK, unix.Timex{Tick: 10_100}, nil},
		"not synchronised":  {unix.TIME_OK, unix.Timex{Tick: 10_000, Status: unix.STA_UNSYNC}, []string{"warning clock: this host's clock is not synchronised"}},
		"in error":          {unix.TIME_ERROR, unix.Timex{Tick: 10_000}, []string{"warning clock: this host's clock is not synchronised"}},
		"slewed by 8.3 %":   {unix.TIME_OK, unix.Timex{Tick: 10_833}, []string{"bad clock: this host's clock is slewed by 8.3 %"}},
		"slewed by -8.3 %":  {unix.TIME_OK, unix.Timex{Tick: 9_167}, []string{"bad clock: this host's clock is slewed by -8.3 %"}},
		"tick and freq":     {unix.TIME_OK, unix.Timex{Tick: 10_100, Freq: 100 << 16}, []string{"bad clock: this host's clock is slewed by 1.0 %"}},
		"both, and neither": {unix.TIME_ERROR, unix.Timex{Tick: 9_000}, []string{"warning clock: ", "bad clock: "}},
	} {
		got := clockFindings(test.state, &test.clock)
		if Worst(got) == OK {
			if len(got) != 1 || got[0].text != "this host's clock is synchronised" {
				t.Errorf("%s: found %+v, want that it is well", what, got)
			}
			got = nil
		}
		compareFindings(t, what, got, test.want)
	}
}
