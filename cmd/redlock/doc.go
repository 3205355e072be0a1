// Command redlock runs commands under the locks of redlockd, and shows their holders.
//
// This package is the command line: a file for each subcommand, with its flags, help and output. It
// calls the packages below internal, which do the work. It never talks to Redis, and it never
// decides which client holds a lock: redlockd does, through package client.
//
// main.go joins the subcommands. lockflags.go has the flags that run and lock share; held.go has
// what check, extend, beat and unlock share. Exit codes are in internal/exit.
package main
