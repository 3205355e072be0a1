package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

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

// optionInError matches how the daemon and the client name an option, and its value if there is one.
var optionInError = regexp.MustCompile(`\b(?:(ttl|max|min|beat|linger|guard)=|a (ttl|max|min|beat|linger|guard) of )([\w.µ-]*)`)

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
		text = optionInError.ReplaceAllStringFunc(text, func(words string) string {
			found := optionInError.FindStringSubmatch(words)
			flag := flagOf[found[1]+found[2]]
			if found[3] == "" {
				return "--" + flag
			}
			return cmp.Or(flags.Typed(cmd, os.Args[1:], flag), "--"+flag+" "+found[3])
		})
		return exit.Reword(err, fmt.Sprintf("%s %q: %s", refused.Op, refused.Name, text))
	}
}
