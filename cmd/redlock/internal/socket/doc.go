// Package socket connects to the daemon of this host.
//
// It owns the path of the socket, the time limit for an answer, and the advice for users who may
// not open the socket. All subcommands that ask the daemon call Connect or Ask; doctor also uses
// the advice. With ConnectWithin, run, lock and wait also wait for a daemon. The package starts no
// daemon.
package socket
