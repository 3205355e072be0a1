package server

// Peer is the process at the other end, as the kernel recorded it when it connected. A descriptor
// that was passed on since, to a child or another process, keeps the identity of the process that
// opened it. If Known is false, the rest is zero.
type Peer struct {
	PID      int // 0 if it is not visible from here: it is in another PID namespace
	UID, GID uint32
	Groups   []uint32 // supplementary groups; none if the kernel does not report them
	Known    bool
}
