package main

import (
	"cmp"
	"strings"

	"github.com/redlockd/redlockd/client"
)

// How the command line names locks: several with commas between them, and a comma that
// belongs to a name as %2C, as the protocol and redlockd validate -lock have it. What is
// printed is written in the same way, so that it can be pasted.
const (
	nameSeparator = ","
	commaInName   = "%2C"
)

// splitNames are the names that a word of the command line stands for. Whether there can
// be such locks is for the client to say, but for those that are not there: that word may
// come from a variable that is empty.
func splitNames(word string) (names []string, err error) {
	for name := range strings.SplitSeq(word, nameSeparator) {
		if name == "" {
			return nil, usage("a NAME is empty in %q (commas stand between names; one that belongs to a name is written %s)", word, commaInName)
		}
		names = append(names, strings.ReplaceAll(name, commaInName, nameSeparator))
	}
	return names, nil
}

// joinNames undoes splitNames.
func joinNames(names ...string) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = strings.ReplaceAll(name, nameSeparator, commaInName)
	}
	return strings.Join(words, nameSeparator)
}

// oneName is the name that a word stands for where a command is about one lock.
func oneName(command, word string) (string, error) {
	names, err := splitNames(word)
	if err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", usage("redlock %s is about one lock, and %q names %d: ask for each of them (a comma that belongs to a name is written %s)",
			command, word, len(names), commaInName)
	}
	return names[0], nil
}

// asTyped is an error of the client about the names of a word, under that word. What the
// client calls the request stays, unless verb is another word for it.
func asTyped(err error, verb, word string) error {
	refused, is := err.(*client.Error) // what has more words around it keeps them
	if !is {
		return err
	}
	typed := *refused
	typed.Op, typed.Name = cmp.Or(verb, typed.Op), word
	return &typed
}
