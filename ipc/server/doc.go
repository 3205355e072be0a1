// Package server serves the protocol of package ipc on a Unix socket. A [Server] accepts
// connections, reads lines, hands requests to a [Session] in order, and writes the answers of many
// requests at once. It keeps the order of requests without a tag, bounds what a client can make it
// hold, shares the processors between users, and freezes connections for a restart.
//
// Package daemon creates the Server and implements Session. This package knows nothing of locks,
// and never blocks a session because a client is slow.
//
// Fairness: a user who is alone is never slowed down. While several users are active, the server
// measures the processor time of each user's requests, over all connections of that user. Each user
// has an allowance. A user who takes more waits for a turn with the others who do, and the server
// does not read that user's connections meanwhile. It rejects nothing for this reason.
package server
