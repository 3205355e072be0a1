// Package logging sets up the daemon's log. It owns the format of a line (text
// or JSON, which SIGHUP can switch), the priorities of systemd's journal, and
// the bounds that keep clients from filling the log.
//
// Package config calls it for the values of log.level and log.format, cmd/redlockd
// for the logger, and the rest of the daemon to log grants, releases and losses.
//
// It never blocks a caller that logs: a [Writer] drops lines that nobody reads, and
// counts them. It never logs the id of a lease or a password: callers do not pass any.
package logging
