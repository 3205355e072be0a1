package redlocktest

import "github.com/redlockd/redlockd/redlock/redlocktest/simredis"

// These functions make the Redis replies that tests expect.
var (
	number = simredis.Number
	text   = simredis.Text
	list   = simredis.List
	null   = simredis.Null
	failed = simredis.Failed
)
