// Package architecture checks the structure of the source tree.
//
// It owns the rules that a compiler does not check: which package may import which, how many files
// a package has, and how many of these files depend on each other in one circle. Its tests check
// the rules; packaging/docs/design/ARCHITECTURE.md draws them.
// draws them.
//
// Nothing imports it, and it never runs code of the project.
package architecture
