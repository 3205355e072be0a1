package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/systemd"
)

// daemon serves until a signal ends it.
func (c *command) daemon(o options) int {
	manager, err := systemd.FromEnvironment()
	if err != nil {
		c.complain(err)
		return exitFailed
	}
	passed, err := daemon.PassedConfig(manager)
	if err != nil {
		c.complain(err)
		return exitFailed
	}
	cfg, err := o.load(passed)
	if err != nil {
		c.complain(c.missing(err, o.config, "-config FILE reads another one; to try redlockd without a config, use -dev"))
		return exitFailed
	}
	lines := c.logWriter()
	defer lines.Close() // its error is ignored: the log is the place to report it
	log := logging.New(lines, cfg.Log.Level, cfg.Log.Format)
	for _, warning := range cfg.Warnings {
		log.Warn("config", "warning", warning)
	}
	saveMemory()
	leaveProcessors()
	if passed != nil {
		// For ps and pgrep: it was executed as /proc/self/exe. It is no loss if that fails.
		_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	}
	if err := c.serveUntilSignal(o, cfg, log, lines, manager, passed != nil); err != nil {
		log.Error("redlockd ends", "error", err)
		return exitFailed
	}
	return exitOK
}

// complain says why there is no log: its config is faulty.
func (c *command) complain(why error) {
	if c.journal {
		c.stderr.Write(logging.JournalLines(hclog.Error, []byte(why.Error()))) // an error could be reported nowhere
		return
	}
	fmt.Fprintln(c.stderr, why)
}

func (c *command) logWriter() *logging.Writer {
	if c.journal {
		return logging.NewJournalWriter(c.stderr)
	}
	return logging.NewWriter(c.stderr)
}

// serveUntilSignal serves with cfg. If continues is true, an earlier process has replaced itself by
// this one.
func (c *command) serveUntilSignal(o options, cfg *config.Config, log hclog.Logger, lines *logging.Writer, manager *systemd.Manager, continues bool) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	served := make(chan struct{})
	defer close(served)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	reload := make(chan *config.Config)
	w := &watcher{c: c, o: o, cfg: cfg, log: log, cancel: cancel, served: served, reload: reload, manager: manager}
	if continues {
		w.readIfChanged()
	}
	watching.Go(w.watch)

	run := daemon.RunOptions{Dev: o.dev, Reload: reload, Manager: manager, Replace: func(passed []systemd.Passed) error {
		lines.Flush()
		return systemd.Replace(passed)
	}}
	if o.dev {
		run.Ready = func() {
			lines.Flush() // so that earlier log lines are above the greeting
			fmt.Fprint(c.stdout, devGreeting(cfg.Socket.Path))
		}
	}
	return c.serve(ctx, cfg, log, run)
}

// watcher acts on signals while the daemon serves.
type watcher struct {
	c      *command
	o      options
	cfg    *config.Config // the config that the daemon serves with
	log    hclog.Logger
	cancel context.CancelFunc
	served <-chan struct{} // closed when serving has ended
	reload chan<- *config.Config
	next   *config.Config // read again and not yet taken by the daemon; nil: nothing

	manager *systemd.Manager
}

// watch ends with serving. The first SIGTERM or SIGINT stops the daemon. If that takes too long,
// a second one ends the process at once.
func (w *watcher) watch() {
	stopping := false
	for {
		select {
		case <-w.served:
			return
		case w.taker() <- w.next:
			w.next = nil
		case sig := <-w.c.signals:
			switch {
			case sig == syscall.SIGHUP && !stopping:
				w.readAgain()
			case sig == syscall.SIGHUP: // too late for a new config
			case stopping:
				// It ends as the signal would have ended it without a handler.
				signal.Reset(sig)
				syscall.Kill(os.Getpid(), sig.(syscall.Signal))
			default:
				stopping, w.next = true, nil
				w.log.Info("asked to stop", "signal", sig)
				w.cancel()
			}
		}
	}
}

// taker receives the config that was read again; nil while there is none. A starting daemon takes
// it only once it serves. Signals are still handled meanwhile.
func (w *watcher) taker() chan<- *config.Config {
	if w.next == nil {
		return nil
	}
	return w.reload
}

// readAgain reads the config again for taker, or logs why the old one stays. The goroutine that ended
// the reload tells the service manager. The daemon may still refuse the config.
func (w *watcher) readAgain() {
	w.tell(w.manager.Reloading())
	next, err := w.o.load(nil)
	if err != nil {
		w.log.Error("config not reloaded: the old one stays in effect", "error", err)
		w.tell(w.manager.Ready())
		return
	}
	for _, warning := range next.Warnings {
		w.log.Warn("config", "warning", warning)
	}
	w.next = next
}

func (w *watcher) tell(err error) {
	if err != nil {
		w.log.Warn("the service manager was not told of the reload", "error", err)
	}
}

// readIfChanged reads the config again if the file is no longer the one that the earlier process
// checked: SIGHUP is ignored while a process replaces itself.
func (w *watcher) readIfChanged() {
	now, err := config.ReadFile(w.o.config)
	if err != nil || !bytes.Equal(now, w.cfg.Source) {
		w.readAgain()
	}
}

// devGreeting returns the text that -dev prints to stdout: commands that work in any directory. Blank
// lines separate it from the log, which goes to stderr.
func devGreeting(socket string) string {
	path, err := filepath.Abs(socket)
	if err != nil {
		path = socket
	}
	if !filepath.IsAbs(socket) && filepath.Dir(socket) == "." {
		socket = "." + string(os.PathSeparator) + filepath.Base(socket)
	}
	return fmt.Sprintf("\nredlockd -dev: these locks exist only in this process. In another terminal:\n\n"+
		"  export REDLOCK_SOCKET=%s\n"+
		"  redlock run demo -- echo hello\n\n"+
		"or:  nc -U %s   then type:  LOCK demo wait=5s\n\n", shellQuoted(path), socket)
}

// shellQuoted quotes a path for a shell if it has to.
func shellQuoted(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
