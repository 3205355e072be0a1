// Command redlockd is the lock daemon of a host. It takes locks on a quorum of Redis masters
// for the processes that connect to its Unix socket.
//
// The exit code is 0 after SIGTERM or SIGINT, or for a valid config. It is 1 if the config has a
// fault, or if the daemon cannot start or continue; 64 for wrong usage; and 77 if validate
// -as USER -lock NAME finds that USER may not lock it.
//
// This package owns the flags, the signals, and the settings of the process: core dumps, memory and
// processors. Package daemon does the rest. It never talks to a node itself.
package main
