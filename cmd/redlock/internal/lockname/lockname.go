package lockname

import (
	"cmp"
	"strings"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// On the command line, commas separate names. A comma inside a name is written %2C, as in the
// protocol and in redlockd validate -lock. Output is written in the same way, so that it can be
// pasted.
const (
	Separator    = ","
	EscapedComma = "%2C"
)

// Split returns the names in a word of the command line. It refuses empty names, which an
// empty variable could cause. The client checks the rest.
func Split(word string) (names []string, err error) {
	for name := range strings.SplitSeq(word, Separator) {
		if name == "" {
			return nil, exit.Usagef("a NAME is empty in %q (commas separate names; write a comma inside a name as %s)", word, EscapedComma)
		}
		names = append(names, strings.ReplaceAll(name, EscapedComma, Separator))
	}
	return names, nil
}

// Join reverses Split.
func Join(names ...string) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = strings.ReplaceAll(name, Separator, EscapedComma)
	}
	return strings.Join(words, Separator)
}

// One returns the name in a word, for a command about one lock.
func One(command, word string) (string, error) {
	names, err := Split(word)
	if err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", exit.Usagef("redlock %s is about one lock, and %q names %d: run it for each of them (write a comma inside a name as %s)",
			command, word, len(names), EscapedComma)
	}
	return names[0], nil
}

// AsTyped replaces the names in an error of the client by the word that the user typed. verb
// replaces the name of the request unless it is empty.
func AsTyped(err error, verb, word string) error {
	refused, is := err.(*client.Error) // a wrapped error keeps its text
	if !is {
		return err
	}
	typed := *refused
	typed.Text = strings.TrimPrefix(typed.Text, typed.Name+": ") // otherwise the error has the name twice
	typed.Op, typed.Name = cmp.Or(verb, typed.Op), word
	return &typed
}
