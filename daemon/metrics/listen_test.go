package metrics

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
)

// retryListener retries every few seconds, and does not log that.
func TestListenRetries(t *testing.T) {
	var log bytes.Buffer
	s := NewServer(Options{Address: "127.0.0.1:0", Log: logging.New(&log, hclog.Trace, logging.Text)})
	other, err := net.Listen("tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	s.Address = other.Addr().String()
	synctest.Test(t, func(t *testing.T) {
		got := make(chan net.Listener, 1)
		go func() { got <- s.retryListener(t.Context()) }()
		time.Sleep(time.Hour)
		if len(got) > 0 || log.String() != "" {
			t.Errorf("got %d listeners while the port is in use, want none, and nothing logged:\n%s", len(got), log.String())
		}
		other.Close()
		free := time.Now()
		(<-got).Close()
		if took := time.Since(free); took > retryListen {
			t.Errorf("the port was free for %v before it was taken, want at most %v", took, retryListen)
		}
	})
}

// listenAdvice fits the error.
func TestListenAdvice(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:9852":       "ip address",
		"no-such.invalid:9852": "ip address",
	} {
		s := NewServer(Options{Address: address, Log: hclog.NewNullLogger()})
		_, err := s.listen(t.Context())
		if err == nil || !strings.Contains(listenAdvice(err), want) {
			t.Errorf("%s: got %v, %q; want an error, and %q", address, err, listenAdvice(err), want)
		}
	}
	if got := listenAdvice(os.NewSyscallError("bind", syscall.EACCES)); !strings.Contains(got, "1024") {
		t.Errorf("got %q for a port that only root may use", got)
	}
}

// The daemon serves clients only after the first attempt. It must end even if the name server does
// not answer.
func TestListenLookUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := net.DefaultResolver
		defer func() { net.DefaultResolver = before }()
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		s := NewServer(Options{Address: "web1.example:9852", Log: hclog.NewNullLogger()})
		began := time.Now()
		if _, err := s.listen(t.Context()); err == nil || time.Since(began) > lookUpTimeout {
			t.Errorf("got %v after %v, want an error within %v", err, time.Since(began), lookUpTimeout)
		}
	})
}
