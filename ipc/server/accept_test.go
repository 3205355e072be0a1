package server

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Each refused client gets the reason, however many come. If a client is admitted in between, it is
// served, as its own user.
func TestServeRefusesClients(t *testing.T) {
	var full atomic.Bool
	var refused atomic.Int64
	d := startFake(t, func(d *fakeDaemon) {
		d.Refused = func(code ipc.Code) {
			if code == ipc.CodeLimit {
				refused.Add(1)
			}
		}
		d.Dismissed = func(Peer) { t.Error("Dismissed was called") }
		d.Admit = func(p Peer) error {
			if p.Known && p.UID != uint32(os.Getuid()) {
				t.Errorf("user %d is asked for, want %d", p.UID, os.Getuid())
			}
			if full.Load() {
				return &ipc.Error{Code: ipc.CodeLimit, Text: "full"}
			}
			return nil
		}
	})
	for range 3 {
		full.Store(true)
		for range 2 * 32 {
			hearEnd(t, d.dial(t), "ERR LIMIT : full\n")
		}
		full.Store(false)
		nc := d.dial(t)
		say(t, nc, "PING\n")
		hear(t, nc, "OK\n")
	}
	if got := refused.Load(); got != 3*2*32 {
		t.Errorf("%d refusals were reported, want %d", got, 3*2*32)
	}
	for _, c := range d.conns {
		if p := c.Peer(); runtime.GOOS == "linux" && (!p.Known || p.UID != uint32(os.Getuid()) || p.PID != os.Getpid()) {
			t.Errorf("the peer is %+v", p)
		}
	}
	if len(d.conns) != 3 {
		t.Errorf("%d connections are served, want 3", len(d.conns))
	}
}

// Cancelling the context, or Shutdown, ends Serve, even if clients to refuse keep coming.
func TestServeEndsWhileClientsKeepComing(t *testing.T) {
	for what, end := range map[string]func(*Server, context.CancelFunc){
		"context":  func(_ *Server, cancel context.CancelFunc) { cancel() },
		"Shutdown": func(s *Server, _ context.CancelFunc) { s.Shutdown(context.Background(), nil) },
	} {
		t.Run(what, func(t *testing.T) {
			d := newFake()
			d.path = t.TempDir() + "/s"
			l, err := net.Listen("unix", d.path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := 0
			d.Admit = func(Peer) error {
				end(&d.Server, cancel)
				if asked++; asked < 1000 {
					d.dial(t)
				}
				return errors.New("full")
			}
			d.dial(t)
			if err := d.Serve(ctx, l); err != nil {
				t.Error(err)
			}
			if asked > 100 {
				t.Errorf("%d were turned away after that", asked)
			}
			if err := l.Close(); err != nil {
				t.Errorf("the listener is not its owner's any more: %v", err)
			}
		})
	}
}

// endingListener is a listener whose wait for a connection ends.
type endingListener struct {
	net.Listener
	end func()
}

func (l *endingListener) Accept() (net.Conn, error) {
	l.end()
	return nil, os.ErrDeadlineExceeded
}

// Serve does not report the end of its wait as a failure.
func TestServeEndsWhileWaiting(t *testing.T) {
	for _, isShutdown := range []bool{true, false} {
		l, err := net.Listen("unix", t.TempDir()+"/s")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := newFake()
		d.AcceptFailed = func(err error, _ time.Duration) { t.Errorf("AcceptFailed was called with %v", err) }
		end := cancel
		if isShutdown {
			end = func() { d.Shutdown(context.Background(), nil) }
		}
		if err := d.Serve(ctx, &endingListener{l, end}); err != nil {
			t.Error(err)
		}
	}
}

// Serve ends if the listener is closed, before the call or during it.
func TestServeEndsWithListener(t *testing.T) {
	for _, isBefore := range []bool{true, false} {
		d := newFake()
		d.path = t.TempDir() + "/s"
		l, err := net.Listen("unix", d.path)
		if err != nil {
			t.Fatal(err)
		}
		d.AcceptFailed = func(err error, _ time.Duration) { t.Errorf("AcceptFailed was called with %v", err) }
		d.Admit = func(Peer) error {
			l.Close()
			return errors.New("full")
		}
		if isBefore {
			l.Close()
		} else {
			d.dial(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := d.Serve(ctx, l); err != nil || ctx.Err() != nil {
			t.Errorf("closed before: %v: %v, %v", isBefore, err, ctx.Err())
		}
	}
}

// After a failure Serve accepts nothing for a while, up to a second, unless it has to end.
func TestServePausesAfterFailure(t *testing.T) {
	var b backoff
	for range 20 {
		b.next()
	}
	if got := b.next(); got != time.Second {
		t.Errorf("after many failures it pauses for %v, want 1s", got)
	}
	synctest.Test(t, func(t *testing.T) {
		var s Server
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, want := range []time.Duration{time.Second, 0} {
			start := time.Now()
			s.acceptFailed(ctx, errors.New("full"), time.Second)
			if took := time.Since(start); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
			cancel()
		}
	})
}

// Serve calls Admit once for a client that comes while others are refused. A second call would
// count the client twice, and in the end the limit would refuse every client.
func TestServeAdmitsOnce(t *testing.T) {
	const n = 10
	var asked atomic.Int64
	begun, goOn := make(chan struct{}), make(chan struct{})
	d := startFake(t, func(d *fakeDaemon) {
		d.Admit = func(Peer) error {
			if asked.Add(1) > 1 {
				return nil
			}
			close(begun)
			<-goOn // by now all other clients have connected
			return errors.New("full")
		}
	})
	first := d.dial(t)
	<-begun
	var rest []net.Conn
	for range n {
		rest = append(rest, d.dial(t))
	}
	close(goOn)
	hearEnd(t, first, "ERR INTERNAL : full\n")
	for _, nc := range rest {
		say(t, nc, "PING\n")
		hear(t, nc, "OK\n")
	}
	if got := asked.Load(); got != 1+n {
		t.Errorf("admission was asked for %d times for %d connections", got, 1+n)
	}
}

// Every refused client gets the reason and the end of its connection, however many there are.
func TestServeRefusesManyClients(t *testing.T) {
	const n = 64 // more than maxRefusals
	begun, goOn := make(chan struct{}), make(chan struct{})
	d := startFake(t, func(d *fakeDaemon) {
		begin := sync.OnceFunc(func() { close(begun) })
		d.Admit = func(Peer) error {
			begin()
			<-goOn // by now all clients have connected
			return errors.New("full")
		}
	})
	all := []net.Conn{d.dial(t)}
	<-begun
	for range n {
		all = append(all, d.dial(t))
	}
	close(goOn)
	for _, nc := range all {
		hearEnd(t, nc, "ERR INTERNAL : full\n")
	}
}
