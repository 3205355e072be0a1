// Package term knows the terminal: its size, its foreground process group, and whether a
// write would block.
//
// It also draws the progress line of a slow command, and repaints a screen for top. If a stream is
// not a terminal, it draws nothing. The package never changes the terminal's settings, so there is
// nothing to restore when the process is killed.
package term
