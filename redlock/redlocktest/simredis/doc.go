// Package simredis simulates the memory of a redis-server. It has the keys, the commands
// that a lane sends, and the scripts of package redlock, written in Go.
//
// It has no network and never waits: the same calls at the same times return the same
// replies. Package redlocktest puts a network and a clock around it ([State] in
// redlocktest.Sim). Tests plant mistakes in its scripts ([Variant]).
package simredis
