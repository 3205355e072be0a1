package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// A Redis master, and the connections to it. The names that callers need are those of
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

// NodeStatus and NodeState are what is known about a node.
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

// NodeError is what one node did wrong, and Failure one word for it.
type (
	NodeError       = node.Error
	QuarantineError = node.QuarantineError
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
	// ErrClosed: the Quorum was closed.
	ErrClosed = node.ErrClosed
	// ErrNotAdmitted: the node still may not vote.
	ErrNotAdmitted = node.ErrNotAdmitted
	// ErrNotQuarantined: only a node in quarantine can be admitted.
	ErrNotQuarantined = node.ErrNotQuarantined
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless = ballot.Endless

// BootTime returns the time since this host was booted: the clock of all deadlines of this package.
// It runs while the host is suspended, as the expiry of keys on the nodes does. (time.Now measures
// on CLOCK_MONOTONIC, which stops then.)
func BootTime() time.Duration { return boottime.Now() }
