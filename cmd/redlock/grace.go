package main

import (
	"cmp"
	"errors"
	"regexp"

	"github.com/redlockd/redlockd/client"
)

// guardWords are what the daemon, and the client, say of --grace, which they know by
// another name.
var guardWords = regexp.MustCompile(`\bguard=(\d+)|\ba guard of (\w+)`)

// inFlags is an error about an option in the words of the command line.
func inFlags(err error) error {
	if !errors.Is(err, client.ErrInvalid) {
		return err
	}
	text := guardWords.ReplaceAllStringFunc(err.Error(), func(words string) string {
		found := guardWords.FindStringSubmatch(words)
		if found[1] != "" {
			found[1] += "ms"
		}
		return "--grace " + graceOf(cmp.Or(found[1:]...))
	})
	return &reworded{text, err}
}

// graceOf is a time as it is typed, of one in whatever unit.
func graceOf(word string) string {
	var d durationFlag
	if d.Set(word) != nil {
		return word
	}
	return d.String()
}
