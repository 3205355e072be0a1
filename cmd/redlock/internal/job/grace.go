package job

import (
	"cmp"
	"errors"
	"regexp"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// guardPattern matches the daemon's and the client's names for --grace.
var guardPattern = regexp.MustCompile(`\bguard=(\d+)|\ba guard of (\w+)`)

// useFlagNames rewords an error about an option so that it names the flag.
func useFlagNames(err error) error {
	if !errors.Is(err, client.ErrInvalid) {
		return err
	}
	text := guardPattern.ReplaceAllStringFunc(err.Error(), func(words string) string {
		found := guardPattern.FindStringSubmatch(words)
		if found[1] != "" {
			found[1] += "ms"
		}
		return "--grace " + durationText(cmp.Or(found[1:]...))
	})
	return exit.Reword(err, text)
}

// durationText formats a duration in the usual units, whatever unit word has.
func durationText(word string) string {
	d, err := time.ParseDuration(word)
	if err != nil {
		return word
	}
	return d.String()
}
