package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

// answerTimeout bounds how long the daemon may take for an answer that does not
// depend on others: one that hangs accepts connections, and answers none.
const answerTimeout = 5 * time.Second

// socketPath is where the daemon listens, as an absolute path, unless that is too long
// for one of a socket: the command under the lock may look for it from another directory.
func socketPath() string {
	path := cmp.Or(os.Getenv("REDLOCK_SOCKET"), client.DefaultSocket)
	if absolute, err := filepath.Abs(path); err == nil && len(absolute) <= ipc.MaxSocketPath {
		return absolute
	}
	return path // also where the working directory is gone: it may do as it is
}

// connect returns a connection to the daemon, or a failure: after answerTimeout
// at the latest, or when ctx is done.
func connect(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := client.Dial(ctx, socketPath())
	if err != nil {
		return nil, daemonFailure(shutOut(socketPath(), silence(err)))
	}
	return c, nil
}

// ask connects, and uses the connection for questions that are answered within
// answerTimeout, or not at all.
func ask(ctx context.Context, use func(context.Context, *client.Client) error) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := use(ctx, c); err != nil {
		return daemonFailure(silence(err))
	}
	return nil
}

// silence says what the end of a context without an answer means, where the error
// does not tell why there is none. (systemd accepts connections for a daemon that its
// config keeps from starting.)
func silence(err error) error {
	known := false
	for _, why := range []error{client.ErrHeld, client.ErrNoQuorum, client.ErrUnavailable, client.ErrShutdown} {
		known = known || errors.Is(err, why)
	}
	if errors.Is(err, context.DeadlineExceeded) && !known {
		return fmt.Errorf("redlockd at %s does not answer: it hangs, this host is overloaded, or it cannot start (systemctl status redlockd, redlockd validate): %w", socketPath(), err)
	}
	return err
}
