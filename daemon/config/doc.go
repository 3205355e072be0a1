// Package config reads redlockd.hcl. It turns the file into a checked [Config] with
// all defaults filled in, or into an [Error] with every fault of the file, each with
// its line and column, what was wanted and what was found.
//
// cmd/redlockd calls it at the start, for validate and at SIGHUP; the packages of the
// daemon read the Config. Passwords and certificates stay in their files: they are
// read at each connection to a node.
//
// It never contacts a node and never evaluates an expression of HCL. So it reads the syntax
// tree instead of using gohcl. gohcl evaluates what it decodes ("${1e99999999}" takes hours),
// reports no position for a value that is only wrong in combination with another block, and
// cannot suggest the word or the block that was meant.
package config
