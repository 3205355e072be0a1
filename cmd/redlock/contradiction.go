package main

import "github.com/spf13/cobra"

// contradiction is the error of flags that do not go together; nil: all do. (cobra, which
// knows of it for completion, would name them as it keeps them: [nonblock nb timeout wait].)
func contradiction(cmd *cobra.Command) error {
	is := cmd.Flags().Changed
	exclusive := is("exclusive") || is("alone") // flock has -e and -x, and takes both
	switch {
	case (is("nonblock") || is("nb")) && (is("timeout") || is("wait")):
		return usage("-n (--nonblock, --nb) and -w (--timeout, --wait) contradict each other: not to wait at all, and for how long to wait")
	case is("nonblock") && is("nb"):
		return usage("-n (--nonblock) and --nb are the same: one of them is enough")
	case is("timeout") && is("wait"):
		return usage("-w (--timeout) and --wait are the same: for how long to wait is to be said once")
	case is("shared") && exclusive:
		return usage("-s (--shared) and -x (--exclusive, -e) contradict each other: together with others who say -s, and alone")
	case is("slots") && (is("shared") || exclusive):
		return usage("--slots goes neither with -s (--shared) nor with -x (--exclusive, -e): so many hold it at a time, whoever they are")
	}
	return nil
}

// unlessContradicting is what is said of the arguments, where the flags go together.
func unlessContradicting(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		if err := contradiction(cmd); err != nil {
			return err
		}
		return args(cmd, words)
	}
}
