package main

import "strings"

// How the command line names locks: several with commas between them, and a comma that
// belongs to a name as %2C, as the protocol and redlockd validate -lock have it. What is
// printed is written in the same way, so that it can be pasted.
const (
	nameSeparator = ","
	commaInName   = "%2C"
)

// splitNames are the names that a word of the command line stands for. Whether there can
// be such locks is for the client to say.
func splitNames(word string) (names []string) {
	for name := range strings.SplitSeq(word, nameSeparator) {
		names = append(names, strings.ReplaceAll(name, commaInName, nameSeparator))
	}
	return names
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
	names := splitNames(word)
	if len(names) > 1 {
		return "", usage("redlock %s is about one lock, and %q names %d: ask for each of them (a comma that belongs to a name is written %s)",
			command, word, len(names), commaInName)
	}
	return names[0], nil
}
