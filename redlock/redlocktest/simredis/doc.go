// Package simredis is the memory of a simulated redis-server: its keys, the commands that
// a lane sends, and the scripts of package redlock written in Go.
//
// It knows nothing of networks and of waiting: the same calls at the same times give the
// same replies. Package redlocktest puts a network and a clock around it ([State] in
// redlocktest.Sim). Tests plant mistakes in its scripts ([Variant]).
package simredis
