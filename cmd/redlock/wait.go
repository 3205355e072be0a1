package main

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newWaitCommand() *cobra.Command {
	w := &waiter{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until a lock is free, without taking it",
		Long: `Wait until nobody holds a lock, on any host, without taking it. Another process may take it
before you do: to work under the lock, use redlock run. Each --interval, redlockd
asks a quorum of the nodes. A lock that is kept for a waiter is not free. NAME is
one lock; a comma in it is written %2C.

If a question fails (redlockd stops, too few nodes answer), redlock wait continues. Only
the first one must succeed. With -w that one is repeated too, if there is no redlockd yet, or
no quorum of nodes.

Exit codes: 0 the lock was free; 1 it was held for the time of -w; 64 usage; 69 the daemon
is not available, or no quorum of nodes answered, at the start (with -w: for its time); 70 internal; 77 denied.`,
		Example: `  redlock wait nightly-backup
  redlock wait -w 90 nightly-backup && echo free`,
		Args:              flags.OneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.name, err = lockname.One("wait", args[0]); err != nil {
				return err
			}
			if err := checkInterval(w.interval); err != nil {
				return err
			}
			if w.bounded = cmd.Flags().Changed("timeout"); !w.bounded {
				w.limit = math.MaxInt64
			}
			return w.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().VarP(flags.Duration(&w.limit), "timeout", "w", "wait at most this time (default: without a limit)")
	cmd.Flags().Var(flags.Duration(&w.interval), "interval", "ask this often")
	noFlagCompletion(cmd, "timeout", "interval")
	return cmd
}

// waiter waits until a lock is free.
type waiter struct {
	name            string
	limit, interval time.Duration
	bounded         bool // by -w
}

// run returns when the lock is free, the time has passed, or the first query fails.
func (w *waiter) run(ctx context.Context, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	if w.bounded { // also wait for a daemon that is not there yet
		c, err := socket.ConnectWithin(context.WithoutCancel(ctx), w.limit, stderr)
		if err != nil {
			return err
		}
		c.Close()
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for answered := false; ; {
		holders, err := fetchHolders(context.WithoutCancel(ctx), w.name)
		answered = answered || err == nil
		// Redlockd or a quorum of its nodes may be missing: a redlockd that has just started has no
		// connections to the nodes yet.
		f, _ := errors.AsType[*exit.Failure](err)
		switch {
		case err == nil && len(holders) == 0:
			return nil
		case !answered && !(w.bounded && f != nil && f.Code == exit.Unavailable):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !answered {
				return err
			}
			return exit.WithCode(exit.Conflict)
		}
	}
}
