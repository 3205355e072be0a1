package flags

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// maxEdits is how many letters of an unknown command may be wrong.
const maxEdits = 2

// unknownCommand matches cobra's error for a command that does not exist.
var unknownCommand = regexp.MustCompile(`^unknown command "([^"]+)" for "[^"]+"$`)

// ExplainUnknownCommand adds the closest commands to the error for an unknown one. (cobra also
// suggests commands of which most letters differ.)
func ExplainUnknownCommand(root *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	found := unknownCommand.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	names := closestCommands(root, found[1])
	if len(names) == 0 {
		return err
	}
	return exit.Usagef("%v\n\nDid you mean this?\n\t%s\n", err, strings.Join(names, "\n\t"))
}

// closestCommands returns the commands that begin with word, or that need the fewest edits to
// become it. Most letters must be right.
func closestCommands(root *cobra.Command, word string) (names []string) {
	for edits := 1; edits <= maxEdits && len(names) == 0; edits++ {
		root.SuggestionsMinimumDistance = edits
		for _, name := range root.SuggestionsFor(word) {
			isPrefix := strings.HasPrefix(name, strings.ToLower(word))
			if isPrefix || 2*edits < max(len(word), len(name)) {
				names = append(names, name)
			}
		}
	}
	return names
}
