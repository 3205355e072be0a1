package locktable

import (
	"slices"
	"testing"
)

// If records are missing, a restart releases nothing and leaves no record of attempts and releases under
// way: the next restart, which misses no record, would release them. Guards Restart.Fates.
func TestNothingIsReleasedIfRecordsAreMissing(t *testing.T) {
	all := []*Recorded{
		{Token: "held", Was: Life{State: Held}},
		{Token: "attempt"},
		{Token: "released", Was: Life{State: Releasing}},
		{Token: "passed", Was: Life{State: Releasing}},
		{Token: "passed", Was: Life{State: Held}},
	}
	for complete, want := range map[bool][]Fate{
		true:  {Continues, Abandoned, Abandoned, WasPassed, Continues},
		false: {Continues, WasPassed, WasPassed, WasPassed, Continues},
	} {
		if got := (&Restart{Complete: complete}).Fates(all); !slices.Equal(got, want) {
			t.Errorf("complete=%v: %v, want %v", complete, got, want)
		}
	}
}
