// Package server serves the protocol of package ipc on a Unix socket. A [Server] accepts
// connections, reads lines, hands requests to a [Session] in order, and writes the answers of many
// requests at once. It keeps the order of requests without a tag, bounds what a client can make it
// hold, shares the processors between users, and freezes connections for a restart.
//
// A Server accepts (accept.go) and makes a Conn, which runs on one goroutine (read_loop.go). Each
// request is a Call (call.go). If a session cannot answer at once, it returns a Work, which a
// worker runs (workers.go).
//
// Package daemon/session implements Session; package daemon serves the socket with it. This package
// does not know what a lock is, and never blocks a session because a client is slow.
//
// Fairness: a lone user is never slowed down. While several users are active, the server measures
// the processor time of each user's requests, over all connections of that user. Each user has an
// allowance. A user that takes more waits for a turn with the others that do, and the server does
// not read that user's connections meanwhile. It rejects nothing for this reason.
package server
