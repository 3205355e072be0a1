package describe

import (
	"os/exec"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// Every shell reads a quoted value as one word, whatever it contains.
func TestQuoted(t *testing.T) {
	for _, word := range []string{"", "a b", `it's`, "$(touch /tmp/x) `id` \"\\\n!*", "''", "grün"} {
		for _, shell := range cmdtest.Shells {
			out, err := exec.Command(shell, "-c", "x="+ShellQuoted(word)+`; printf %s "$x"`).Output()
			if err != nil || string(out) != word {
				t.Errorf("%s makes %q of %q (%v)", shell, out, ShellQuoted(word), err)
			}
		}
	}
}
