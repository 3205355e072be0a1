// Package lockname parses and prints the names of locks on the command line.
//
// A comma separates names, and %2C is a comma inside a name. Output of redlock can be pasted as an
// argument. All subcommands that take a NAME use this package. It does not check length and
// characters: the daemon does.
package lockname
