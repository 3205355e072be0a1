// Package doctor finds faults that make locks less safe or less available.
//
// Examine runs all checks: of the socket, of the daemon and its nodes as the daemon reports
// them, of systemd, and of this host's clock. A check is a function from what was fetched to
// findings. The subcommand doctor prints them. The package takes no lock, and it changes
// nothing.
package doctor
