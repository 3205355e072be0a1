package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func Print(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "print", false, "print the fencing token, the lease and others as assignments for a shell")
}

func JSON(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "for programs: print JSON")
}

// Typed returns a flag as the user typed it, with its value: "-t 1ms" or "--ttl 1ms". It is empty
// if the flag was not given. args is the command line.
func Typed(cmd *cobra.Command, args []string, name string) string {
	flag := cmd.Flags().Lookup(name)
	if flag == nil || !flag.Changed {
		return ""
	}
	word := "--" + flag.Name
	if flag.Shorthand != "" && !isTypedLong(args, flag.Name, flag.Shorthand) {
		word = "-" + flag.Shorthand
	}
	return fmt.Sprint(word, " ", flag.Value)
}

// isTypedLong reports whether args have the long form of a flag, and the short form not before it.
func isTypedLong(args []string, name, shorthand string) bool {
	for _, arg := range args {
		switch word, _, _ := strings.Cut(arg, "="); {
		case word == "--"+name:
			return true
		case strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, shorthand):
			return false
		}
	}
	return false
}
