package ipc

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// Who is turned away is told why, however many come. Who is admitted between them is
// served, as the user that he is.
func TestServeTurnsAway(t *testing.T) {
	var full atomic.Bool
	d := startFake(t, func(d *fakeDaemon) {
		d.Admit = func(p Peer) error {
			if p.Known && p.UID != uint32(os.Getuid()) {
				t.Errorf("user %d is asked for, want %d", p.UID, os.Getuid())
			}
			if full.Load() {
				return &Error{Code: CodeLimit, Text: "full"}
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
	for _, c := range d.conns {
		if p := c.Peer(); runtime.GOOS == "linux" && (!p.Known || p.UID != uint32(os.Getuid()) || p.PID != os.Getpid()) {
			t.Errorf("the peer is %+v", p)
		}
	}
	if len(d.conns) != 3 {
		t.Errorf("%d connections are served, want 3", len(d.conns))
	}
}

// A listener that is closed while many are turned away ends Serve.
func TestServeEndsWhileTurningAway(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) {
		d.Admit = func(Peer) error { return errors.New("full") }
	})
	hearEnd(t, d.dial(t), "ERR INTERNAL : full\n")
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// So does its context, and Shutdown, also where there is always another to turn away.
func TestServeEndsWhileThereIsNoEnd(t *testing.T) {
	for what, end := range map[string]func(*Server, context.CancelFunc){
		"context":  func(_ *Server, cancel context.CancelFunc) { cancel() },
		"Shutdown": func(s *Server, _ context.CancelFunc) { s.stop(nil) },
	} {
		t.Run(what, func(t *testing.T) {
			d := newFake()
			d.path = t.TempDir() + "/s"
			l, err := net.Listen("unix", d.path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
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
		})
	}
}

// Who comes while others are turned away is asked for once: what is counted in twice is
// never counted out, and in the end nobody is admitted any more.
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
			<-goOn // all others have connected by then
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
