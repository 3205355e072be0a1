// Package flags has the values of flags, checks of arguments, and better error messages for both.
//
// All subcommands of redlock use it, and redlockd does not. It knows cobra and pflag, and the
// options of flock(1).
//
// It never reads the environment, and it never asks the daemon.
package flags
