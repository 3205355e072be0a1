// Command man writes the manual pages of redlockd, except redlock(1), which redlock
// prints itself. The requests in redlockd-protocol(7) come from HELP.
//
//	go run ./packaging/man VERSION DATE DIR
//
// It owns the text of the pages. packaging/package.sh and the end-to-end tests run it. It
// never talks to a daemon, and it writes nothing outside DIR.
package main
