package flags

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// unknownFlag is pflag's error for a flag that does not exist.
type unknownFlag interface {
	error
	GetSpecifiedName() string
	GetSpecifiedShortnames() string // from the unknown flag on
}

// flockOnly names the replacement of an option that only flock(1) has.
func flockOnly(flag string) string {
	switch flag {
	case "u", "unlock":
		return "the lock is released when the command ends; instead of flock -u NUMBER, use redlock unlock NAME"
	case "o", "close":
		return "processes that the command leaves running never hold the lock: leave it out"
	case "F", "no-fork":
		return "redlock run stays, to keep the lock while the command runs: leave it out"
	}
	return ""
}

// ExplainRunError adds the replacement of a flag of flock(1) to the error.
func ExplainRunError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[unknownFlag](err)
	if !ok || flockOnly(unknown.GetSpecifiedName()) == "" || isWord(unknown.GetSpecifiedShortnames()) {
		return ExplainError(cmd, err)
	}
	return exit.Usagef("%v, which flock has: %s", err, flockOnly(unknown.GetSpecifiedName()))
}

// ExplainError explains two common errors: a long flag with one dash, and a value for a flag
// without one.
func ExplainError(cmd *cobra.Command, err error) error {
	const dashes = "a flag of more than one letter begins with two dashes"
	if unknown, ok := errors.AsType[unknownFlag](err); ok && isWord(unknown.GetSpecifiedShortnames()) {
		return exit.Usagef("%v: %s", err, dashes)
	}
	invalid, ok := errors.AsType[interface {
		error
		GetValue() string
	}](err)
	if !ok {
		return err
	}
	value := invalid.GetValue()
	if what, _, isBool := strings.Cut(err.Error(), ": strconv.ParseBool"); isBool {
		if _, notNumber := strconv.Atoi(value); notNumber == nil {
			return exit.Usagef("%s: it takes none (how many may hold a lock at a time: --slots %s)", what, value)
		}
		return exit.Usagef("%s: it takes none", what)
	}
	if name, _, is := strings.Cut(value, "="); is && strings.Trim(name, "-abcdefghijklmnopqrstuvwxyz") == "" {
		return exit.Usagef("%v; %s", err, dashes)
	}
	return err
}

// isWord guesses whether letters after one dash are meant as one long flag. No command needs more
// than two flags of one letter together.
func isWord(letters string) bool {
	return len(letters) > 2 || strings.Contains(letters, "=")
}
