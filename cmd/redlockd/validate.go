package main

import (
	"fmt"

	"github.com/redlockd/redlockd/daemon"
)

// validate checks a config and the files that it names, as far as that goes
// without a connection to any node.
func (c *command) validate(args []string) int {
	flags := c.flagSet("redlockd validate")
	config := flags.String("config", defaultConfig, "the config `FILE`")
	if code, done := c.parseFlags(flags, args); done {
		return code
	}
	cfg, err := daemon.LoadConfig(*config)
	if err != nil {
		fmt.Fprintln(c.stderr, err)
		return exitFailed
	}
	for _, warning := range cfg.Warnings {
		fmt.Fprintln(c.stderr, "warning:", warning)
	}
	n := len(cfg.Quorum.Nodes)
	fmt.Fprintf(c.stdout, "ok: %d nodes, %d needed for a lock, socket %s\n", n, n/2+1, cfg.Socket.Path)
	return exitOK
}
