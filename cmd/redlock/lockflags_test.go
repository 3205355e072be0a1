package main

import (
	"testing"
)

// A command that can share the lock does not wait for itself if it runs under that lock.
func TestSharesOfFlags(t *testing.T) {
	for _, test := range []struct {
		flags runFlags
		want  bool
	}{
		{runFlags{}, false},
		{runFlags{exclusive: true}, false},
		{runFlags{shared: true}, true},
		{runFlags{slots: 1}, false},
		{runFlags{slots: 2}, true},
	} {
		test.flags.isSet = func(string) bool { return false }
		if got := test.flags.job().Shares; got != test.want {
			t.Errorf("%+v: shares %v, want %v", test.flags, got, test.want)
		}
	}
}
