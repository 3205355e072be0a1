package redlocktest

import "github.com/redlockd/redlockd/redlock/redlocktest/simredis"

// The replies of a Redis, for what is expected of it.
var (
	number = simredis.Number
	text   = simredis.Text
	list   = simredis.List
	null   = simredis.Null
	failed = simredis.Failed
)
