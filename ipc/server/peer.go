package server

// Peer is the process at the other end, as the kernel recorded it when the connection was made. If
// the process passes the descriptor to a child or another process, Peer still identifies the
// process that opened it. If Known is false, the other fields are zero.
type Peer struct {
	PID      int // 0 if the process is in another PID namespace
	UID, GID uint32
	Groups   []uint32 // supplementary groups; none if the kernel does not report them
	Known    bool
}
