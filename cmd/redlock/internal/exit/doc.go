// Package exit maps errors to the exit codes of redlock.
//
// A subcommand returns an error made by Errorf, Usagef, WithCode or FromClient, and main
// calls Report once, which prints the error and returns the code. The codes are those of
// sysexits.h and of shells; scripts rely on them, so they never change. The package never
// exits the process itself.
package exit
