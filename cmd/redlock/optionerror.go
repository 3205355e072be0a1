package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/ipc"
)

// flagOf maps options of the protocol to the flags that set them.
var flagOf = map[string]string{
	"ttl": "ttl", "max": "max", "min": "at-least", "beat": "beat", "linger": "linger", "guard": "grace",
}

// optionNames matches the keys of flagOf.
const optionNames = `(ttl|max|min|beat|linger|guard)`

// The forms in which the daemon and the client name an option, and the daemon's durations.
var (
	optionWithValue = regexp.MustCompile(`\b` + optionNames + `=(\d+)|\ba ` + optionNames + ` of (\w+)`)
	optionAlone     = regexp.MustCompile(`\b` + optionNames + `=`)
	rangeInMS       = regexp.MustCompile(`\bbetween (\d+) and (\d+) ms\b`)
	durationInMS    = regexp.MustCompile(`\b(\d+) ms\b`)
)

// holderRefused matches the daemon's refusal of a process with hold=pid.
var holderRefused = regexp.MustCompile(`^hold=pid, process (\d+): (.*)$`)

// holderText says why a process cannot hold the lock, in words of the command line.
func holderText(exec bool, pid, reason string) string {
	what, instead := "process "+pid+" cannot hold the lock", "use redlock run, which works here"
	if exec {
		what, instead = "--exec does not work here", "leave --exec out"
	}
	switch {
	case strings.Contains(reason, "its parent processes"):
		reason = "redlockd runs in another PID namespace, and there accepts only the process that calls redlock and those above it"
	case strings.Contains(reason, "cannot see the client's process"):
		reason = "redlockd cannot see it (it runs in another container)"
	case strings.Contains(reason, "pid 1 lives"):
		reason = "pid 1 lives as long as the machine or container"
		if !exec {
			instead += ", or name another process with --pid"
		}
	case strings.Contains(reason, "no pidfd"):
		reason = "redlockd needs Linux 5.3 or later for that"
	default: // such as a process of another user, which has nothing to do with where this runs
		return what + ": " + reason
	}
	return what + ": " + reason + ": " + instead
}

// optionError returns a function that rewords an error about an option: it names the flag as the
// user typed it, and its value, in place of the protocol's words.
func optionError(cmd *cobra.Command) func(error) error {
	return func(err error) error {
		refused, is := errors.AsType[*client.Error](err)
		if !is {
			return err
		}
		text := strings.TrimPrefix(refused.Text, refused.Name+": ")
		if found := holderRefused.FindStringSubmatch(text); found != nil {
			return exit.Reword(err, fmt.Sprintf("%s %q: %s", refused.Op, refused.Name, holderText(cmd.Flags().Changed("exec"), found[1], found[2])))
		}
		if refused.Code != string(ipc.CodeOption) {
			return err
		}
		text = optionWithValue.ReplaceAllStringFunc(text, func(words string) string {
			found := optionWithValue.FindStringSubmatch(words)
			value := found[4]
			if found[2] != "" {
				value = inMS(found[2])
			}
			flag := flagOf[cmp.Or(found[1], found[3])]
			return cmp.Or(flags.Typed(cmd, os.Args[1:], flag), "--"+flag+" "+value)
		})
		text = optionAlone.ReplaceAllStringFunc(text, func(word string) string { return "--" + flagOf[word[:len(word)-1]] })
		text = rangeInMS.ReplaceAllStringFunc(text, func(words string) string {
			found := rangeInMS.FindStringSubmatch(words)
			return "between " + inMS(found[1]) + " and " + inMS(found[2])
		})
		text = durationInMS.ReplaceAllStringFunc(text, func(words string) string { return inMS(words[:len(words)-len(" ms")]) })
		return exit.Reword(err, fmt.Sprintf("%s %q: %s", refused.Op, refused.Name, text))
	}
}

// inMS formats a number of milliseconds as flags have it.
func inMS(number string) string {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return number + "ms"
	}
	return (time.Duration(n) * time.Millisecond).String()
}
