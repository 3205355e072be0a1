package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/systemd"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 64 // EX_USAGE
	exitDenied = 77 // EX_NOPERM, as redlock's if the daemon answers DENIED
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program; it returns the exit code.
func run(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	// The daemon's memory has the passwords of the nodes. If that fails, the limit of the start stays.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	// Go ends a program whose stderr is a broken pipe, even if the parent process has SIGPIPE ignored.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	c := &command{stdout: stdout, stderr: stderr, journal: systemd.StderrIsJournal(), signals: signals, config: defaultConfig, expected: creators, serve: daemon.Run}
	return c.run(args)
}

// creators are the directory of the default socket, and the service that creates it.
var creators = []string{
	filepath.Dir(config.DefaultSocketPath),
	"/etc/systemd/system/redlockd.service", "/usr/lib/systemd/system/redlockd.service", "/lib/systemd/system/redlockd.service",
}

// command is one run of redlockd. A test replaces its fields.
type command struct {
	stdout, stderr io.Writer
	journal        bool // stderr is a stream of systemd's journal
	signals        <-chan os.Signal
	config         string   // where the config is unless -config says otherwise
	expected       []string // the default socket's directory, and what creates it at the start
	serve          func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error
}

func (c *command) run(args []string) int {
	if len(args) > 0 && args[0] == "validate" {
		return c.validate(args[1:])
	}
	o, code, done := c.parse(args)
	if done {
		return code
	}
	if o.version {
		fmt.Fprintln(c.stdout, "redlockd", daemon.Version())
		return exitOK
	}
	return c.daemon(o)
}
