// Package output writes tables and JSON, and formats cells: durations, counts, names.
//
// Text of other users is quoted if it could control the terminal. Each write error becomes a
// failure with an exit code, so that no output is cut short without an error. All subcommands use
// the package; it knows nothing about locks.
package output
