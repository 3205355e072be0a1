// Package e2e tests redlockd and redlock as they are built: processes, nc, systemd, packages, and
// real redis-servers. It also runs the commands of the README and the pages.
//
// It owns the tests that need more than one program. packaging/test.sh runs them, and nothing
// imports it. They use no port and no file of the host: everything is in temporary directories.
package e2e
