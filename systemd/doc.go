// Package systemd is how redlockd speaks with the service manager that started
// it: readiness, reloads, a line of status, the watchdog, the sockets that it was
// handed, and the connections that it leaves for the next process. The unit files
// are beside it.
//
// Nothing here needs systemd: of a process that no manager started, Manager's
// methods do nothing.
package systemd
