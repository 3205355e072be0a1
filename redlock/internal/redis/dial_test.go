package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/redlock/internal/redis/redistest"
)

// A name that cannot be resolved and a port where nothing listens need different fixes, and the
// error says which. Guards withAdvice.
func TestDialErrorsAdvise(t *testing.T) {
	for want, err := range map[string]error{
		"the name in its address cannot be resolved: correct it": &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "redis-z"}},
		"connection refused: start Redis there":                  &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"something else":                                         errors.New("something else"),
	} {
		_, got := dialRedis(t.Context(), Options{Name: "a", Address: "redis-z:6379",
			Dial: func(context.Context) (net.Conn, error) { return nil, err }})
		if got == nil || !strings.HasPrefix(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

// The driver gets one connection, and no other one later. Here it needs a second one, because the node
// speaks only RESP2. Guards dialOnce.
func TestDriverDialsOnce(t *testing.T) {
	const helloOfRESP2 = "%1\r\n+proto\r\n:2\r\n"
	answers := helloOfRESP2 + helloOfRESP2 + "+OK\r\n" // to HELLO 3, HELLO 2 and CLIENT SETNAME
	_, err := listenRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
		Dial: func(context.Context) (net.Conn, error) {
			return redistest.Scripted{Reader: strings.NewReader(answers)}, nil
		}}, "channel", func(string) {})
	if !errors.Is(err, errDialedBefore) {
		t.Errorf("got error %v, want %v", err, errDialedBefore)
	}
}

// If a node repeats the password in an error, the error of the log-in does not show it. Guards explain.
func TestLoginErrorHidesPassword(t *testing.T) {
	_, err := dialRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
		Password: func() (string, error) { return "hunter2", nil },
		Dial: func(context.Context) (net.Conn, error) {
			return redistest.Scripted{Reader: strings.NewReader("-ERR AUTH default hunter2 failed\r\n")}, nil
		}})
	if want := "ERR AUTH default [redacted] failed"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// Nor does the error of a listener that may not subscribe. Guards driverError.
func TestListenerErrorHidesPassword(t *testing.T) {
	_, err := listenRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
		Password: func() (string, error) { return "hunter2", nil },
		Dial: func(context.Context) (net.Conn, error) {
			ours, node := net.Pipe()
			go func() { // ends with the connection
				defer node.Close()
				for _, answer := range []string{"%1\r\n+proto\r\n:3\r\n", "-NOPERM not with hunter2\r\n"} {
					node.Read(make([]byte, 4096))
					io.WriteString(node, answer)
				}
				node.Read(make([]byte, 1))
			}()
			return ours, nil
		}}, "x", func(string) {})
	if want := "NOPERM not with [redacted]"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// The network may notice the deadline before the context does. The error is the same. Guards
// Options.explain.
func TestDialTimeout(t *testing.T) {
	for _, err := range []error{os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		_, got := dialRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
			Dial: func(context.Context) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Err: err} }})
		if login := (*LoginError)(nil); !errors.As(got, &login) || !errors.Is(got, context.DeadlineExceeded) || login.Connect != 0 {
			t.Errorf("%v: got %#v, want a LoginError of the deadline", err, got)
		}
	}
}
