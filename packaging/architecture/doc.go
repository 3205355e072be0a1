// Package architecture checks the structure of the source tree.
//
// It owns the rules that a compiler does not check: which package may import which, what the
// pages may name, and that everything has correct types on other systems. Its tests
// check the rules; packaging/docs/design/ARCHITECTURE.md draws the imports.
//
// Nothing imports it, and it never runs code of the project.
package architecture
