package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// These types describe a Redis master and the connections to it. They are aliases of types in
// package redis.
type (
	Node        = redis.Node
	NodeOptions = redis.Options
	Conn        = redis.Conn
	Command     = redis.Command
	Reply       = redis.Reply
	ServerError = redis.ServerError
	AnswerError = redis.AnswerError
	Listener    = redis.Listener
)

// RedisNode returns a Redis master as a Node. Nothing is dialled yet.
func RedisNode(o NodeOptions) Node { return redis.NewNode(o) }

// NodeStatus is what the Quorum knows about a node. NodeState is the state of a node.
type (
	NodeStatus = node.Status
	NodeState  = node.State
)

const (
	NodeConnecting  = node.Connecting
	NodeReady       = node.Ready
	NodeDown        = node.Down
	NodeQuarantined = node.Quarantined
	NodeRefused     = node.Refused
)

// NodeError is an error of one node. Failure is its kind.
type (
	NodeError       = node.Error
	QuarantineError = node.QuarantineError
	RightsError     = node.RightsError
	Failure         = node.Failure
)

const (
	FailedTimeout     = node.FailedTimeout
	FailedDown        = node.FailedDown
	FailedFull        = node.FailedFull
	FailedLate        = node.FailedLate
	FailedError       = node.FailedError
	FailedQuarantined = node.FailedQuarantined
	FailedRefused     = node.FailedRefused
)

var (
	// ErrClosed means that the Quorum was closed.
	ErrClosed = node.ErrClosed
	// ErrNotAdmitted means that the node is still excluded from voting.
	ErrNotAdmitted = node.ErrNotAdmitted
	// ErrNotQuarantined means that the node is not in quarantine: only such nodes can be
	// admitted.
	ErrNotQuarantined = node.ErrNotQuarantined
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless = ballot.Endless

// BootTime returns the time since this host was booted. All deadlines of this package are on this
// clock. It runs while the host is suspended, like the expiry of keys on the nodes. (time.Now
// measures on CLOCK_MONOTONIC, which stops then.)
func BootTime() time.Duration { return boottime.Now() }
