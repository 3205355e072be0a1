package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
	"github.com/redlockd/redlockd/ipc"
)

// AnswerTimeout bounds the wait for an answer that does not depend on other holders. A daemon that
// hangs accepts connections, but does not answer.
const AnswerTimeout = 5 * time.Second

// Path returns the path of the socket. It is absolute, because the command under the lock may
// run in another directory, unless an absolute path is too long for a socket.
func Path() string {
	path := cmp.Or(os.Getenv(variable), client.DefaultSocket)
	if strings.Contains(path, "://") {
		return path // client.Dial rejects a URL
	}
	if absolute, err := filepath.Abs(path); err == nil && len(absolute) <= ipc.MaxSocketPath {
		return absolute
	}
	return path // too long, or the working directory was removed
}

// Connect returns a connection to the daemon, or a failure. It waits at most AnswerTimeout, or
// until ctx is done.
func Connect(ctx context.Context) (*client.Client, error) { return connect(ctx, 0) }

// ConnectWithin is like Connect, but waits at most that long for a daemon that is not there yet, or
// that does not answer yet. If that takes long, it says so once on stderr.
func ConnectWithin(ctx context.Context, wait time.Duration, stderr io.Writer) (*client.Client, error) {
	var printing sync.WaitGroup
	printing.Add(1)
	notice := time.AfterFunc(explainAfter, func() {
		defer printing.Done()
		if term.Writable(stderr) {
			fmt.Fprintf(stderr, "redlock: waiting for redlockd, which does not answer on %s yet\n", Path())
		}
	})
	c, err := connect(ctx, wait)
	if notice.Stop() {
		printing.Done()
	}
	printing.Wait() // so that nothing is printed later
	return c, err
}

// explainAfter is how long a wait for redlockd takes before it is explained.
const explainAfter = time.Second

func connect(ctx context.Context, wait time.Duration) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, max(wait, AnswerTimeout))
	defer cancel()
	c, err := client.Dial(ctx, Path(), client.WithDialWait(wait))
	if err != nil {
		return nil, exit.FromClient(explainAbsent(explainDenied(Path(), ExplainTimeout(err)), wait))
	}
	return c, nil
}

// devSocket is the socket of redlockd -dev, in its working directory.
const devSocket = "redlockd.sock"

// explainAbsent adds what to do, if err means that no daemon listens, or has listened for the time
// of the wait.
func explainAbsent(err error, wait time.Duration) error {
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	waited := ""
	if wait > 0 {
		waited = fmt.Sprintf(" (waited %v)", wait)
	}
	return exit.Reword(err, "no redlockd listens on "+Path()+waited+": "+HowToReach())
}

// HowToReach says what to do if no daemon listens on the socket.
func HowToReach() string {
	info, none := os.Stat(devSocket)
	switch {
	case Path() == client.DefaultSocket && none == nil && info.Mode().Type() == fs.ModeSocket:
		return "there is ./" + devSocket + ", as of redlockd -dev: export REDLOCK_SOCKET=$PWD/" + devSocket
	case byFlag:
		return "start redlockd there (to try it out: redlockd -dev), or give --socket the socket of one that runs"
	case os.Getenv(variable) != "":
		return "start redlockd there (to try it out: redlockd -dev), or set REDLOCK_SOCKET, which names this path, to the socket of a running one"
	}
	return "start redlockd (systemctl start redlockd; to try it out: redlockd -dev), or set REDLOCK_SOCKET to the socket of a running one"
}

// Flag returns the value of --socket. Setting it sets REDLOCK_SOCKET for this process and for the
// command that it runs.
func Flag() *flags.Value {
	return flags.New("PATH", func(path string) error {
		if path == "" {
			return errors.New("must be the path of a socket")
		}
		byFlag = true
		return os.Setenv(variable, path)
	})
}

// byFlag means that --socket names the socket, and not the caller's environment variable. The flag
// is parsed before anything else runs.
var byFlag bool

// variable is the environment variable that names the socket.
const variable = "REDLOCK_SOCKET"

// Ask connects and calls use, which must finish within AnswerTimeout.
func Ask(ctx context.Context, use func(context.Context, *client.Client) error) error {
	c, err := Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	if err := use(ctx, c); err != nil {
		return exit.FromClient(ExplainTimeout(err))
	}
	return nil
}

// Get connects to the daemon, and returns what ask gets from it.
func Get[T any](ctx context.Context, ask func(*client.Client, context.Context) (T, error)) (answer T, err error) {
	err = Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		answer, err = ask(c, ctx)
		return err
	})
	return answer, err
}

// ExplainTimeout adds what a missing answer means, if the error does not say it. (If the config is
// wrong, systemd accepts connections for a daemon that does not start.)
func ExplainTimeout(err error) error {
	known := false
	for _, why := range []error{client.ErrHeld, client.ErrNoQuorum, client.ErrUnavailable, client.ErrShutdown} {
		known = known || errors.Is(err, why)
	}
	if errors.Is(err, context.DeadlineExceeded) && !known {
		return fmt.Errorf("redlockd at %s does not answer: it hangs, this host is overloaded, or it cannot start (systemctl status redlockd, redlockd validate): %w", Path(), err)
	}
	return err
}
