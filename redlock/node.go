package redlock

import "github.com/redlockd/redlockd/redlock/internal/redis"

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
