// Package redis has a connection to one Redis master: it dials, logs in, sends groups of commands
// and reads their replies, and listens for messages. The driver (rueidis) logs in and listens. The
// commands and the replies pass it by: see redisConn. Each byte that a node sends is checked, also
// before the driver gets it. A node that does not follow the protocol loses its connection, and
// harms nothing else.
//
// Package node uses it. It never reconnects, never repeats a command, and knows nothing about
// locks.
package redis
