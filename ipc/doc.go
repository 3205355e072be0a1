// Package ipc is the line protocol between a local process and redlockd: its
// requests and replies with one parser and one formatter for each, and the
// server's side of a connection. It knows nothing of locks.
//
// A request is one line, such as
//
//	@a1 LOCK nightly-backup ttl=10s wait=5s
//
// and a reply is some lines that begin with "-" and one that begins with OK or
// ERR:
//
//	@a1 OK lock=nightly-backup lease=4fJk2 fence=1795247588294176 ttl=9893
//
// [ParseRequest] and [ParseResponse] refuse what they do not understand.
// AppendTo writes the canonical form: parsing that gives the same value again.
//
// [Server] serves connections: it reads lines, hands them in order to a
// [Session], and writes the answers of many requests at once.
//
// It shares its processors between users. Nobody is slowed who is alone. While
// several are active, the processing of each user's requests is measured, on all of
// his connections: a part of the processors is his; what he wants beyond that he
// takes from what is common, in turns with others who do, and his connections are
// not read from until then. Nothing is refused for it.
package ipc
