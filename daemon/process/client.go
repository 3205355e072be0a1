package process

import "time"

// Client is the process that connected to a Unix socket, and its end of the connection. A later daemon
// finds out with it whether both are gone. The zero Client is not known.
type Client struct {
	PID     int
	Started time.Duration // BootTime, from Facts
	Socket  uint64        // the inode of its end of the connection, while any process has that open

	// PIDNamespace and NetNamespace are the inodes of the daemon's namespaces, in which PID and Socket
	// are valid.
	PIDNamespace, NetNamespace uint64
}
