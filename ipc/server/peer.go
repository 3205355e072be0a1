package server

// Peer is the process at the other end, as the kernel recorded it when it
// connected: a descriptor that was handed on since, to a child or another
// process, keeps the identity of who opened it. Where it is not Known the rest is zero.
type Peer struct {
	PID      int // 0 if it is not visible from here, as in another PID namespace
	UID, GID uint32
	Groups   []uint32 // its supplementary groups; none where the kernel does not tell
	Known    bool
}
