package ipc

// Peer is the process at the other end, as the kernel recorded it when it
// connected. Where it is not Known the rest is zero.
type Peer struct {
	PID      int
	UID, GID uint32
	Known    bool
}
