package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
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
