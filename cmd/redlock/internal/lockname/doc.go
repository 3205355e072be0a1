// Package lockname parses and prints the names of locks on the command line.
//
// A comma separates names, and %2C is a comma inside a name. Whatever redlock prints can be
// pasted as an argument. All subcommands that take a NAME use it. The package does not check
// what the daemon checks: length and characters.
package lockname
