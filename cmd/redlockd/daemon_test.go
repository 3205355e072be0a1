package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

func TestSignalStops(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		var f *fixture
		f = newFixture(t, func(ctx context.Context, _ *config.Config, _ hclog.Logger, _ daemon.RunOptions) error {
			f.signals <- sig
			<-ctx.Done()
			return nil
		})
		f.check(t, f.run([]string{"-dev"}), exitOK, "", "asked to stop")
	}
}

// A good config reaches the daemon, and flags still override it. A faulty config does not reach the
// daemon.
func TestReload(t *testing.T) {
	name := writeConfig(t, goodConfig)
	unreadable := strings.Replace(goodConfig, "\n", "\n  node \"d\" {\n    address = \"10.0.0.4:6379\"\n    password_file = \"none\"\n  }\n", 1)
	refused := make(notifier, 8)
	var f *fixture
	f = newFixture(t, func(_ context.Context, _ *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		for i, c := range []struct{ source, want string }{{faultyConfig, name + ":2:13: quorum.max_ttl"}, {unreadable, name + `:4:21: node \"d\".password_file`}} {
			replaceConfig(t, name, c.source)
			f.signals <- syscall.SIGHUP
			if got := <-refused; !strings.Contains(got, "config not reloaded") || !strings.Contains(got, c.want) {
				t.Errorf("got the log line %q, want a refusal with %q", got, c.want)
			}
			replaceConfig(t, name, goodConfig+fmt.Sprintf("limits { connections = %d }\n", i+1))
			f.signals <- syscall.SIGHUP
			if got := <-o.Reload; got.Limits.Connections != i+1 || got.Socket.Path != "x.sock" {
				t.Errorf("got %d connections, socket %q; want %d, x.sock", got.Limits.Connections, got.Socket.Path, i+1)
			}
		}
		return nil
	})
	f.stderr = refused
	f.check(t, f.run([]string{"-config", name, "-socket", "x.sock"}), exitOK, "", "")
}

// notifier sends every write to a channel.
type notifier chan string

func (n notifier) Write(line []byte) (int, error) {
	n <- string(line)
	return len(line), nil
}

// The daemon logs warnings about its config at the start and at each reload.
func TestConfigWarns(t *testing.T) {
	twoNodes := strings.Replace(goodConfig, `  node "c" { address = "10.0.0.3:6379" }`+"\n", "", 1)
	name := writeConfig(t, twoNodes)
	var f *fixture
	f = newFixture(t, func(_ context.Context, _ *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		f.signals <- syscall.SIGHUP
		<-o.Reload
		return nil
	})
	f.check(t, f.run([]string{"-config", name}), exitOK, "", "2 nodes tolerate no more failures than 1 would")
	if n := strings.Count(f.err.String(), "2 nodes tolerate no more failures than 1 would"); n != 2 {
		t.Errorf("the warning is logged %d times, want once at the start and once at the reload:\n%s", n, f.err.String())
	}
}

// A starting daemon that has not taken a new config yet still stops on a signal. The config is the
// one of the last SIGHUP.
func TestStopBeforeReload(t *testing.T) {
	name := writeConfig(t, goodConfig)
	awaitMessage := listenAsManager(t)
	var f *fixture
	f = newFixture(t, func(ctx context.Context, _ *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		for i := range 2 {
			replaceConfig(t, name, goodConfig+fmt.Sprintf("limits { connections = %d }\n", i+1))
			f.signals <- syscall.SIGHUP
			awaitMessage("RELOADING=1")
		}
		f.signals <- syscall.SIGHUP // handled after the previous one
		awaitMessage("RELOADING=1")
		if got := <-o.Reload; got.Limits.Connections != 2 {
			t.Errorf("got %d connections, want 2, of the last config", got.Limits.Connections)
		}
		f.signals <- syscall.SIGHUP
		awaitMessage("RELOADING=1")
		f.signals <- syscall.SIGTERM
		<-ctx.Done()
		return nil
	})
	f.check(t, f.run([]string{"-config", name}), exitOK, "", "asked to stop")
}

// A daemon that ends while a config is being read does not take it. The program still ends.
func TestReloadAtTheEnd(t *testing.T) {
	awaitMessage := listenAsManager(t)
	var f *fixture
	f = newFixture(t, func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error {
		f.signals <- syscall.SIGHUP
		awaitMessage("RELOADING=1")
		return nil
	})
	ended := make(chan int)
	go func() { ended <- f.run([]string{"-dev"}) }()
	select {
	case code := <-ended:
		f.check(t, code, exitOK, "", "")
	case <-time.After(2 * time.Minute):
		t.Fatal("the program does not end, because the config is not taken")
	}
}

// TestDev runs the real daemon. After the first log lines, stdout shows the commands, which work from
// then on.
func TestDev(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "r.sock")
	f := newFixture(t, daemon.Run)
	reader, writer := io.Pipe()
	f.stdout, f.stderr = writer, writer
	ended := make(chan int, 1)
	go func() { ended <- f.run([]string{"-dev", "-socket", socket}); writer.Close() }()

	printed := bufio.NewReader(reader)
	var text string
	for want := devGreeting(socket); !strings.HasSuffix(text, want); {
		line, err := printed.ReadString('\n')
		if text += line; err != nil {
			t.Fatalf("got %q, %v; want %q at the end", text, err, want)
		}
	}
	if !strings.Contains(text, "serving: ") {
		t.Errorf("the greeting is above the log:\n%s", text)
	}
	go io.Copy(io.Discard, printed) // until it ends
	if got := ask(t, socket, "LOCK demo wait=100s"); !strings.HasPrefix(got, "OK lock=demo ") {
		t.Errorf("got %q, want OK", got)
	}
	f.signals <- syscall.SIGTERM
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("got exit code %d, want 0:\n%s", code, text)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("SIGTERM did not end the program")
	}
}

func ask(t *testing.T, socket, request string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintln(conn, request)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// The export line of -dev can be pasted whatever the path of the socket is.
func TestShellQuoted(t *testing.T) {
	for path, want := range map[string]string{
		"/tmp/r-1.sock":   "/tmp/r-1.sock",
		"/tmp/my dir/s":   "'/tmp/my dir/s'",
		"/tmp/it's/$s":    `'/tmp/it'\''s/$s'`,
		"/home/jürgen/s+": "/home/jürgen/s+",
	} {
		if got := shellQuoted(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestDevGreeting(t *testing.T) {
	if got := devGreeting("/tmp/r.sock"); !strings.HasPrefix(got, "\n") || !strings.Contains(got, "\n\n  export REDLOCK_SOCKET=/tmp/r.sock\n") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("got %q, want the line to export set off by blank lines", got)
	}
	for socket, want := range map[string]string{
		"./redlockd.sock": "nc -U ./redlockd.sock ",
		"r.sock":          "nc -U ./r.sock ",
		"/tmp/r.sock":     "nc -U /tmp/r.sock ",
		"dir/r.sock":      "nc -U dir/r.sock ",
	} {
		if got := devGreeting(socket); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want it to contain %q", socket, got, want)
		}
	}
}
