package effort

import (
	"strconv"
	"testing"
)

func TestEachCheckIsInOneTenth(t *testing.T) {
	chosen := map[int]int{}
	t.Setenv("REDLOCKD_LONG", "")
	for tenth := range 10 {
		t.Setenv("REDLOCKD_TENTH", strconv.Itoa(tenth))
		for i := range 25 {
			if Chooses(i) {
				chosen[i]++
			}
		}
	}
	for i := range 25 {
		if chosen[i] != 1 {
			t.Errorf("check %d is in %d of the ten tenths, want one", i, chosen[i])
		}
	}
	t.Setenv("REDLOCKD_LONG", "1")
	if !Chooses(3) || Rounds(1, 5) != 5 {
		t.Error("REDLOCKD_LONG does not run everything")
	}
	t.Setenv("REDLOCKD_LONG", "")
	t.Setenv("REDLOCKD_TENTH", "")
	if !Chooses(3) || Rounds(1, 5) != 1 {
		t.Error("without REDLOCKD_TENTH a check is left out, or there are many rounds")
	}
}
