package main

import "testing"

func TestProcessorsOf(t *testing.T) {
	for all, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 64: 4} {
		if got := processorsOf(all); got != want {
			t.Errorf("of %d processors: %d, want %d", all, got, want)
		}
	}
}
