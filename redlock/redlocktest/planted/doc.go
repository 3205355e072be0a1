// Package planted builds the tests of a package with deliberate mistakes in the source. The tests must
// find each of them. That shows that the lines are needed, and that the tests can fail.
//
// It is for tests alone. It changes no file of the tree: "go test -overlay" reads the changed ones from
// another directory. One binary has all mistakes, and an environment variable says which one is planted.
package planted
