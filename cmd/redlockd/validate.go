package main

import (
	"fmt"

	"github.com/redlockd/redlockd/daemon"
)

// validate checks a config and the files that it names, as far as that goes
// without a connection to any node. With -as and -lock it says what its access
// rules allow.
func (c *command) validate(args []string) int {
	flags := c.flagSet("redlockd validate")
	config := flags.String("config", defaultConfig, "the config `FILE`")
	as := flags.String("as", "", "with -lock: say what `USER` may do with that lock, and by which access rule")
	lock := flags.String("lock", "", "the `NAME` of the lock")
	if code, done := c.parseFlags(flags, args); done {
		return code
	}
	if isSet(flags, "as") != isSet(flags, "lock") {
		return c.usageError("-as USER and -lock NAME go together")
	}
	cfg, err := daemon.LoadConfig(*config)
	if err != nil {
		fmt.Fprintln(c.stderr, err)
		return exitFailed
	}
	for _, warning := range cfg.Warnings {
		fmt.Fprintln(c.stderr, "warning:", warning)
	}
	if isSet(flags, "as") {
		return c.judge(cfg, *as, *lock)
	}
	n := len(cfg.Quorum.Nodes)
	fmt.Fprintf(c.stdout, "ok: %d nodes, %d needed for a lock, socket %s\n", n, n/2+1, cfg.Socket.Path)
	return exitOK
}

// judge prints a line for each right. The exit code tells whether the user may
// take the lock.
func (c *command) judge(cfg *daemon.Config, as, lock string) int {
	verdicts, err := cfg.Verdicts(as, lock)
	if err != nil {
		return c.usageError(err.Error())
	}
	code := exitDenied
	for _, v := range verdicts {
		word := "denied"
		if v.Allowed {
			word = "allowed"
		}
		if v.Allowed && v.Right == daemon.RightToLock {
			code = exitOK
		}
		fmt.Fprintf(c.stdout, "%-8s %-8s %s\n", v.Right, word, v.Why)
	}
	return code
}
