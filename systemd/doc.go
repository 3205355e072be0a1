// Package systemd is how redlockd speaks with the service manager that started
// it: readiness, reloads, a line of status, the watchdog, and the sockets that it
// was handed. The unit files are beside it.
//
// Nothing here needs systemd: of a process that no manager started, Manager's
// methods do nothing.
package systemd
