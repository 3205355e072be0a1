package job

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// fatal are the signals that end the wait for a lock, and that are forwarded to a running command.
var fatal = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGABRT,
}

// harmless are the signals that are only forwarded to a running command. Before that they have
// their usual effect on this process.
var harmless = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}

// maxPendingSignals is the size of the signal buffers.
const maxPendingSignals = 64

// signals receives the signals of this process. SIGPIPE is caught and dropped: a closed stderr is
// no reason to end and have the command killed.
type signals struct {
	others   chan os.Signal
	children chan os.Signal // SIGCHLD: buffers one, because reap sees all changes
	dropped  chan os.Signal
	terminal bool // this process had a terminal at the start
}

func catchSignals() *signals {
	s := &signals{
		others:   make(chan os.Signal, maxPendingSignals),
		children: make(chan os.Signal, 1),
		dropped:  make(chan os.Signal, 1),
		terminal: term.HasTerminal(),
	}
	signal.Notify(s.children, syscall.SIGCHLD)
	signal.Notify(s.dropped, syscall.SIGPIPE)
	s.catch(slices.Concat(fatal, fatalHere))
	return s
}

// catch does not catch signals that this process ignored at its start (nohup, &), and that the
// command ignores as well. Go's runtime handles only SIGHUP and SIGINT in this way.
func (s *signals) catch(which []os.Signal) {
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(s.others, sig)
		}
	}
}

// pendingSignal returns a signal that came after the wait and before the command started, or 0.
func (s *signals) pendingSignal() syscall.Signal {
	select {
	case sig := <-s.others:
		return sig.(syscall.Signal)
	default:
		return 0
	}
}

// interrupt returns a context that a signal cancels. endInterrupt cancels the context and returns
// the signal, or 0. Later signals are left for pendingSignal and the command.
func (s *signals) interrupt() (ctx context.Context, endInterrupt func() syscall.Signal) {
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

// sentToGroup guesses whether a signal also went to the other processes of the group, and so to the
// command. No system call tells. The terminal sends its signals to the whole foreground group, and
// the shell does so with SIGCONT. After a hang-up, SIGHUP goes to the group, unless it comes from
// the kernel, which signals only the leader of the session.
func (s *signals) sentToGroup(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH:
		return term.InForeground()
	case syscall.SIGHUP:
		return s.terminal && !term.HasTerminal() && !term.LeadsSession()
	}
	return false
}
