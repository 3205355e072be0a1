package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// For an unknown command, redlock suggests the closest commands, and none if no command is close.
func TestUnknownCommandSuggestsTheClosest(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"lok": "lock", "lo": "lock", "unlokc": "unlock", "chk": "check", "Status": "status", "stauts": "status", "l": "lock list",
		"foo": "", "xp": "", "frobnicate": "",
	} {
		code, _, stderr := cmdtest.Run(t, "", word, "-t", "1s", "job")
		cmdtest.CheckExit(t, code, exit.Usage, stderr, `unknown command "`+word+`" for "redlock"`)
		_, suggested, _ := strings.Cut(stderr, "Did you mean this?")
		suggested, _, _ = strings.Cut(suggested, "Try ")
		if got := strings.Join(strings.Fields(suggested), " "); got != want {
			t.Errorf("for %q it suggests %q, want %q", word, got, want)
		}
	}
}
