package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// unknownFlag is pflag's error of a flag that there is not.
type unknownFlag interface {
	error
	GetSpecifiedName() string
	GetSpecifiedShortnames() string // from the one that there is not on
}

// notOurs says of the options of flock(1) that redlock run has not what there is instead.
func notOurs(flag string) string {
	switch flag {
	case "u", "unlock":
		return "the lock is given back when the command ends; instead of flock -u NUMBER there is redlock unlock NAME"
	case "o", "close":
		return "what the command leaves running does not hold the lock anyway: leave it out"
	case "F", "no-fork":
		return "redlock run stays, to keep the lock while the command runs: leave it out"
	}
	return ""
}

// runFlagFault says more of a flag that is unknown here and known to flock.
func runFlagFault(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[unknownFlag](err)
	if !ok || notOurs(unknown.GetSpecifiedName()) == "" || isLong(unknown.GetSpecifiedShortnames()) {
		return flagFault(cmd, err)
	}
	return usage("%v, which flock has: %s", err, notOurs(unknown.GetSpecifiedName()))
}

// flagFault says more of what is right for other programs: long flags with one dash, and
// values of flags that have none.
func flagFault(cmd *cobra.Command, err error) error {
	const dashes = "a flag of more than one letter begins with two dashes"
	if unknown, ok := errors.AsType[unknownFlag](err); ok && isLong(unknown.GetSpecifiedShortnames()) {
		return usage("%v: %s", err, dashes)
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
			return usage("%s: it takes none (how many may hold a lock at a time: --slots %s)", what, value)
		}
		return usage("%s: it takes none", what)
	}
	if name, _, is := strings.Cut(value, "="); is && strings.Trim(name, "-abcdefghijklmnopqrstuvwxyz") == "" {
		return usage("%v; %s", err, dashes)
	}
	return err
}

// isLong tells whether letters that stand behind one dash are the word of a flag: few
// commands have so many flags of one letter that three of them stand together.
func isLong(letters string) bool {
	return len(letters) > 2 || strings.Contains(letters, "=")
}
