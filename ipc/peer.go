package ipc

// Peer is the process at the other end, as the kernel recorded it when it
// connected. Where it is not Known the rest is zero.
type Peer struct {
	PID      int // 0 if it is not visible from here, as in another PID namespace
	UID, GID uint32
	Known    bool
}
