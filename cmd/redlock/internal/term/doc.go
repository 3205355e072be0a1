// Package term knows the terminal: its size, its foreground process group, and whether a
// write would block.
//
// It also draws the progress line of a command that takes long, and repaints a screen for
// top. If a stream is no terminal, it draws nothing. The package never changes the
// terminal's settings, so there is nothing to restore when the process is killed.
package term
