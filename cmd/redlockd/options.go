package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
)

const (
	defaultConfig = "/etc/redlockd/redlockd.hcl"
	longestSocket = 107 // the kernel's bound
)

const usage = `Usage:
  redlockd [-config FILE] [-socket PATH] [-log-level LEVEL]   serve, with the nodes of the config
  redlockd -dev [-socket PATH] [-log-level LEVEL]             serve, with nodes inside this process: to try it out
  redlockd validate [FILE]                                    check the config and the files that it names
  redlockd validate -as USER -lock NAME [FILE]                say what USER may do with that lock, and by which access rule
  redlockd -version

Signals: SIGTERM and SIGINT stop it (twice: at once); locks that clients hold are not released: the next redlockd
continues with them.
SIGHUP reads the config again. If log, access, limits and doctor are not all that changed, redlockd restarts in
place: leases, waiters and connections continue. It refuses another key_prefix, and another list
of nodes without joining and leaving.
Exit codes: 0 stopped, or the config is good; 1 the config is faulty, or it could not start; 64 wrong usage;
77 USER may not lock NAME.

Flags:
`

// options are the flags of redlockd. They override the config file, also when
// it is read again.
type options struct {
	config   string
	dev      bool
	socket   string      // "": the config's
	logLevel hclog.Level // NoLevel: the config's
	version  bool
}

// parse reads the flags. If done, the program ends with code.
func (c *command) parse(args []string) (o options, code int, done bool) {
	flags := c.flagSet("redlockd")
	flags.StringVar(&o.config, "config", c.config, "the config `FILE`")
	flags.BoolVar(&o.dev, "dev", false, "no config file: five nodes inside this process, socket ./redlockd.sock")
	flags.StringVar(&o.socket, "socket", "", "listen at `PATH` instead of the config's socket.path")
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	flags.Func("log-level", "log from `LEVEL` up instead of the config's log.level: trace, debug, info, warn, error", func(word string) (err error) {
		o.logLevel, err = logging.ParseLevel(word)
		return err
	})
	if code, done := c.parseFlags(flags, args, 0); done {
		return o, code, true
	}
	if o.dev && isSet(flags, "config") {
		return o, c.usageError("-dev uses no config file: leave out -dev or -config"), true
	}
	if n := len(o.socket); isSet(flags, "socket") && (n == 0 || n > longestSocket) {
		return o, c.usageError(fmt.Sprintf("-socket: wanted a path of 1 to %d bytes, found %d bytes", longestSocket, n)), true
	}
	return o, exitOK, false
}

func (c *command) flagSet(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(c.stderr)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// parseFlags parses args. At most so many operands may follow the flags. If args ask for help, it
// prints the help to stdout.
func (c *command) parseFlags(flags *flag.FlagSet, args []string, operands int) (code int, done bool) {
	show := flags.Usage
	flags.Usage = func() {}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(c.stdout)
		show()
		return exitOK, true
	case err != nil: // the flag package has printed the error
		fmt.Fprintln(c.stderr, "redlockd -help shows the usage")
		return exitUsage, true
	case flags.NArg() > operands:
		return c.usageError(fmt.Sprintf("unknown argument %q", flags.Arg(operands))), true
	}
	return exitOK, false
}

func (c *command) usageError(text string) int {
	fmt.Fprintf(c.stderr, "redlockd: %s\nredlockd -help shows the usage\n", text)
	return exitUsage
}

func isSet(flags *flag.FlagSet, name string) (set bool) {
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// missing says what to do if no config was named and the default config does not exist.
func (c *command) missing(err error, config, instead string) error {
	if config == c.config && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", err, instead)
	}
	return err
}

// load returns the config with the flags applied. text is what an earlier process has read; nil: the
// file is read.
func (o *options) load(text []byte) (*config.Config, error) {
	cfg, err := o.source(text)
	if err != nil {
		return nil, err
	}
	if o.socket != "" {
		cfg.Socket.Path = o.socket
	}
	if o.logLevel != hclog.NoLevel {
		cfg.Log.Level = o.logLevel
	}
	return cfg, nil
}

func (o *options) source(text []byte) (*config.Config, error) {
	switch {
	case o.dev:
		return config.Dev(), nil
	case text != nil:
		return config.Parse(text, o.config)
	}
	return config.Load(o.config)
}
