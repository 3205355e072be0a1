// Package redis has a connection to one Redis master: it dials, logs in, sends groups of commands
// and reads their replies, and listens for keys that change. It wraps the driver (rueidis), and
// checks each byte that a node sends before the driver gets it. A node that does not follow the
// protocol loses its connection, and harms nothing else.
//
// Several groups can be in progress on one connection. The driver has no call that writes without
// waiting for the replies, so Send writes the group itself, and Receive lets the driver do the
// same group: see pipeline.go.
//
// Package node uses it. It never reconnects, never repeats a command, and knows nothing about
// locks.
package redis
