// Package conformance tests clients of redlockd, in any language, with one set of scripts.
//
// A script says what the daemon says and when, and what the program must see. One fake daemon plays
// it to a small program that uses the client. The tests do so for the clients of this repository.
// Authors of other clients read README.md. Only tests use this package, and it imports the standard
// library, package ipc for the protocol, and package client for its program in Go.
package conformance
