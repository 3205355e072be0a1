package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// deadly are the signals that end the wait for a lock, as they would end the
// process, and that a running command gets.
var deadly = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGABRT,
}

// harmless are the signals that only a running command gets. While nothing runs
// they do to us what they do to anybody.
var harmless = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}

// pending is how many signals can wait for us to look at them.
const pending = 64

// signals are those that came to this process. SIGPIPE is caught and dropped: a
// stderr that nobody reads is no reason to end, and to have the command killed.
type signals struct {
	others   chan os.Signal
	children chan os.Signal // SIGCHLD: one place, as one look sees all that is new
	dropped  chan os.Signal
	terminal bool // there was one at the beginning
}

func catchSignals() *signals {
	s := &signals{
		others:   make(chan os.Signal, pending),
		children: make(chan os.Signal, 1),
		dropped:  make(chan os.Signal, 1),
		terminal: hasTerminal(),
	}
	signal.Notify(s.children, syscall.SIGCHLD)
	signal.Notify(s.dropped, syscall.SIGPIPE)
	s.catch(slices.Concat(deadly, deadlyHere))
	return s
}

// catch leaves alone what this process was started to ignore (nohup, &): the
// command inherits that. (Go's runtime knows it of SIGHUP and SIGINT alone.)
func (s *signals) catch(which []os.Signal) {
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(s.others, sig)
		}
	}
}

// passOn is called before the command starts: from then on it gets them all.
func (s *signals) passOn() { s.catch(harmless) }

// sooner is the first signal that has come too late to end the wait, and too soon for the
// command to have it, as from the terminal; 0: none has.
func (s *signals) sooner() syscall.Signal {
	select {
	case sig := <-s.others:
		return sig.(syscall.Signal)
	default:
		return 0
	}
}

// interrupt makes a context that ends when a signal comes. calm ends the context
// and returns the signal, 0 if none came; later ones stay for sooner, and the command.
func (s *signals) interrupt() (ctx context.Context, calm func() syscall.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var came syscall.Signal
	wg.Go(func() {
		select {
		case sig := <-s.others:
			came = sig.(syscall.Signal)
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() syscall.Signal {
		cancel()
		wg.Wait()
		return came
	}
}

// sentToAll tells whether a signal that has come also went to all of our process
// group, as to the command. Nobody says who sent a signal, but the terminal sends
// its own to the whole group in its foreground, as the shell does with SIGCONT.
// When it hangs up, so does whoever tells us, unless that is the kernel, which
// tells the session's leader only.
func (s *signals) sentToAll(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH:
		return inForeground()
	case syscall.SIGHUP:
		return s.terminal && !hasTerminal() && !leadsSession()
	}
	return false
}
