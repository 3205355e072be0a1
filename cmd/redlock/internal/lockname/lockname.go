package lockname

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// On the command line, commas separate names. A comma inside a name is written %2C, as in the
// protocol and in redlockd validate -lock, and a %2C inside a name is written %252C. Output is written in
// the same way, so that it can be pasted.
const (
	Separator    = ","
	EscapedComma = "%2C"
)

// escaped matches what stands for a comma, or for a text that would.
var escaped = regexp.MustCompile(`,|%(25)*2C`)

// unescape removes one level of escapes: %2C is a comma, %252C is %2C.
func unescape(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(text string) string {
		if text == EscapedComma {
			return Separator
		}
		return "%" + text[len("%25"):]
	})
}

// escape reverses unescape.
func escape(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(text string) string {
		if text == Separator {
			return EscapedComma
		}
		return "%25" + text[len("%"):]
	})
}

// Split returns the names in a word of the command line. It refuses empty names, which an
// empty variable could cause. The client checks the rest.
func Split(word string) (names []string, err error) {
	for name := range strings.SplitSeq(word, Separator) {
		if name == "" {
			return nil, exit.Usagef("a NAME is empty in %q (commas separate names; write a comma inside a name as %s)", word, EscapedComma)
		}
		names = append(names, unescape(name))
	}
	return names, nil
}

// Join reverses Split.
func Join(names ...string) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = escape(name)
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
