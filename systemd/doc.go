// Package systemd talks to the service manager that started redlockd: readiness, reloads, the
// status line, the watchdog, the sockets that it passed, and the connections that it keeps for the
// next process. The unit files are in the same directory.
//
// Package daemon and its state use it. Nothing here needs systemd: if no manager started the
// process, the methods of Manager do nothing. This package never waits for a manager that hangs,
// unless a method says so.
package systemd
