package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
)

// validate checks a config and the files that it names, as far as that goes
// without a connection to any node. With -as and -lock it says what its access
// rules allow.
func (c *command) validate(args []string) int {
	flags := c.flagSet("redlockd validate")
	file := flags.String("config", c.config, "the config `FILE`")
	as := flags.String("as", "", "with -lock: say what `USER` may do with that lock, and by which access rule")
	lock := flags.String("lock", "", "the `NAME` of the lock, or of several, separated by commas (a comma in a name: %2C)")
	if code, done := c.parseFlags(flags, args, 1); done {
		return code
	}
	if flags.NArg() > 0 {
		if isSet(flags, "config") {
			return c.usageError("-config names the config file already: leave out " + flags.Arg(0))
		}
		*file = flags.Arg(0)
	}
	if isSet(flags, "as") != isSet(flags, "lock") {
		return c.usageError("-as USER needs -lock NAME, and -lock NAME needs -as USER")
	}
	cfg, err := config.Load(*file)
	if err != nil {
		fmt.Fprintln(c.stderr, c.missing(err, *file, "redlockd validate FILE checks another one"))
		return exitFailed
	}
	warnings := cfg.Warnings
	if warning := c.missingDirectory(cfg.Socket.Path); warning != "" && !isSet(flags, "as") {
		warnings = append(warnings, warning)
	}
	for _, warning := range warnings {
		fmt.Fprintln(c.stderr, "warning:", warning)
	}
	if isSet(flags, "as") {
		return c.judge(cfg, *as, *lock)
	}
	if slices.ContainsFunc(warnings, func(warning string) bool { return strings.Contains(warning, config.NeverStarts) }) {
		fmt.Fprintln(c.stderr, "redlockd does not start with this config on this host: see the warnings")
		return exitFailed
	}
	nodes := fmt.Sprintf("%d nodes", len(cfg.Quorum.Nodes))
	if len(cfg.Quorum.Nodes) == 1 {
		nodes = "1 node"
	}
	fmt.Fprintf(c.stdout, "ok: %s, %d needed for a lock, socket %s%s\n", nodes, cfg.Quorum.Needed(), cfg.Socket.Path, onThisHost(warnings))
	return exitOK
}

// onThisHost ends the verdict if the warnings say what must still be created: a good config can be
// checked on a host that is not ready for it, and the service creates directories.
func onThisHost(warnings []string) string {
	if slices.ContainsFunc(warnings, func(warning string) bool { return strings.Contains(warning, config.WillNotStart) }) {
		return "; the config is good, but this host is not ready for it: see the warnings"
	}
	return ""
}

// missingDirectory warns if the directory of the default socket does not exist and
// the package, whose service creates it, is not installed. config.Load warns about any
// other missing directory.
func (c *command) missingDirectory(socket string) string {
	if socket != config.DefaultSocketPath || slices.ContainsFunc(c.expected, exists) {
		return ""
	}
	dir := filepath.Dir(socket)
	return fmt.Sprintf("socket.path: %s does not exist, and redlockd.service, which creates it, is not installed: %s. Create it (install -d -m 0755 %s), or set another socket.path", dir, config.WillNotStart, dir)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// judge prints a line for each right on each lock. With several locks, the line names the lock.
// The exit code says whether the user may take them all.
func (c *command) judge(cfg *config.Config, as, locks string) int {
	names := strings.Split(locks, ",")
	all := make([][]access.Verdict, len(names))
	for i, name := range names {
		var err error
		if all[i], err = access.Verdicts(cfg, as, strings.ReplaceAll(name, "%2C", ",")); err != nil {
			return c.usageError(err.Error())
		}
		names[i] += ": "
	}
	if len(names) == 1 {
		names[0] = ""
	}
	code := exitOK
	for i, verdicts := range all {
		if !c.printVerdicts(names[i], verdicts) {
			code = exitDenied
		}
	}
	return code
}

// printVerdicts prints the verdicts and reports whether the user may take the lock.
func (c *command) printVerdicts(prefix string, verdicts []access.Verdict) (mayLock bool) {
	for _, v := range verdicts {
		word := "denied"
		if v.Allowed {
			word = "allowed"
		}
		mayLock = mayLock || v.Allowed && v.Right == access.RightToLock
		fmt.Fprintf(c.stdout, "%s%-8s %-8s %s\n", prefix, v.Right, word, v.Why)
	}
	return mayLock
}
