// Package simredis simulates the memory of a redis-server: the keys, the commands that a lane
// sends, and the Lua scripts of package redlock, which it runs.
//
// It has no network and never waits. The same calls at the same times return the same replies.
// Package redlocktest adds a network and a clock ([State] in redlocktest.Sim). Tests plant mistakes
// in its scripts ([Variant]).
package simredis
