package session

import "github.com/redlockd/redlockd/ipc"

// clientEnd is the end of a client's connection, with what decides about one of its leases.
type clientEnd struct {
	hold     ipc.Hold
	lost     bool // the lease was lost before
	lingers  bool // it has linger=
	cut      bool // the daemon cut the connection: the client may be at work, and not know it yet
	stopping bool // the daemon stops: the client can resume the lease with the next one
}

// endAction is what happens to a lease when its client's connection ends.
type endAction uint8

const (
	keepLease    endAction = iota // its ttl, its process, or the next daemon decides
	letExpire                     // it stays taken until the deadline that the client was told
	lingerFirst                   // it is released after linger=, unless the client resumes it
	releaseNow                    // it is released
	forgetLoss                    // nobody is left to ask about it
	forgetForced                  // likewise; what FORCE left of it is released, as its client has stopped
)

// action decides. No lease of a client that may be at work is released.
func (e clientEnd) action() endAction {
	switch {
	case e.lost && e.hold == ipc.HoldConn && !e.cut && !e.stopping:
		return forgetForced
	case e.lost:
		return forgetLoss
	case e.hold != ipc.HoldConn, e.stopping:
		return keepLease
	case e.cut:
		return letExpire
	case e.lingers:
		return lingerFirst
	}
	return releaseNow
}
