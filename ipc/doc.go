// Package ipc is the line protocol between a local process and redlockd: requests, responses,
// error codes, and one parser and one formatter for each.
//
// A request is one line:
//
//	@a1 LOCK nightly-backup ttl=10s wait=5s
//
// A reply is any number of lines that begin with "-", and one line that begins with OK or ERR:
//
//	@a1 OK lock=nightly-backup lease=4fJk2 fence=1795247588294176 ttl=9893
//
// [ParseRequest] and [ParseResponse] reject what they do not understand. AppendTo writes the
// canonical form: parsing it gives the same value again.
//
// The daemon, its server (package ipc/server) and the Go client use this package. It imports the
// standard library only, holds no connection, and knows nothing of locks.
package ipc
