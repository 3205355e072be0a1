// Package flags has the values of flags, the checks of arguments, and better messages for
// what is wrong with either.
//
// All subcommands use it. It knows cobra and pflag, and how flock(1) spells its options. It
// never reads the environment, and it never asks the daemon.
package flags
