package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// LoginError means that the log-in failed.
type LoginError struct {
	Connect time.Duration // how long the network took to connect: about a round trip; 0: it did not
	Err     error
}

func (e *LoginError) Error() string { return e.Err.Error() }
func (e *LoginError) Unwrap() error { return e.Err }

var errNoHandshake = errors.New("no answer to the TLS handshake in time: it hangs, or does not speak TLS there (tls-port in its redis.conf)")

// explain explains an error of the log-in. isSilent means that the node has connected, but has not
// answered a single byte.
func (o *Options) explain(ctx context.Context, err error, conn *guardedConn, isSilent bool) *LoginError {
	return &LoginError{Connect: conn.connectTime, Err: o.explanation(ctx, driverError(err, conn.password), isSilent)}
}

func (o *Options) explanation(ctx context.Context, err error, isSilent bool) error {
	isOver := ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) // the network can notice the deadline first
	switch {
	case isOver && !errors.Is(err, errNoHandshake): // the other errors only report that we closed the connection
		return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	case !hasHungUp(err) || !isSilent:
		return explainHangUp(withAdvice(err))
	case o.TLS == nil && !strings.HasPrefix(o.Address, "unix:"):
		return fmt.Errorf("it ended the connection before it answered the login: does it speak TLS there? Then it needs a tls block in the config (%w)", err)
	}
	return fmt.Errorf("it ended the connection before it answered the login (%w)", err)
}

// withAdvice adds the fix to errors that mean the same for every node.
func withAdvice(err error) error {
	switch dns := (*net.DNSError)(nil); {
	case errors.As(err, &dns):
		return fmt.Errorf("the name in its address cannot be resolved: correct it, or the DNS of this host (%w)", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return &explained{"connection refused: start Redis there, or correct its address and port", err}
	case IsServerError(err) && strings.Contains(err.Error(), "DB index is out of range"):
		return fmt.Errorf("%w: it has no database of that number: correct database in the config, or raise databases in its redis.conf", err)
	case IsServerError(err) && strings.Contains(err.Error(), "SELECT is not allowed in cluster mode"):
		return fmt.Errorf("%w: a node of a cluster has no other databases, and no node of redlockd may be one", err)
	case IsServerError(err) && strings.Contains(err.Error(), "max number of clients reached"):
		return fmt.Errorf("%w: raise maxclients in its redis.conf, or end connections there (CLIENT LIST)", err)
	}
	return err
}

// explained is an error with another text, which is the same for all nodes: the error has an address.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

func hasHungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// explainHangUp explains an EOF, which alone would look like a fault of redlockd.
func explainHangUp(err error) error {
	if !hasHungUp(err) {
		return err
	}
	return fmt.Errorf("it ended the connection, or something between did (%w)", err)
}

// serverError returns an error that a node answered in these words.
func serverError(text string) ServerError { return ServerError(cmp.Or(withoutArguments(text), "ERR")) }

// driverError turns an error that the node answered into a ServerError without the password, and leaves
// errors of the connection unchanged.
func driverError(err error, password string) error {
	answer, ok := rueidis.IsRedisErr(err)
	switch {
	case !ok:
		return err
	case password == "":
		return serverError(answer.Error())
	}
	return serverError(strings.ReplaceAll(answer.Error(), password, "[redacted]"))
}

// withoutArguments removes the arguments that a server repeats if it does not know a command. The
// reader of an error must not see keys, tokens and passwords. And a reason that differs each time
// would be logged each time.
func withoutArguments(text string) string {
	if text, _, repeats := strings.Cut(text, "with args beginning with"); repeats {
		return text + "with arguments that are not shown here"
	}
	return text
}

// IsServerError reports whether the node itself answered the error.
func IsServerError(err error) bool { return errors.As(err, new(ServerError)) }
