// Package architecture checks the structure of the source tree.
//
// It owns the rules that a compiler does not check: which package may import which, what the
// pages and comments may name, and how long a file of a program in packaging may be. Its tests
// check the rules; packaging/docs/design/ARCHITECTURE.md draws the imports.
//
// Nothing imports it, and it never runs code of the project.
package architecture
