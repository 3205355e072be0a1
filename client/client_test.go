package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// TestMain fails if a test leaves a goroutine of this package running.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := goroutinesLeft(time.Now().Add(time.Minute)); code == 0 && left != "" {
		println("goroutines are left:\n" + left)
		code = 1
	}
	os.Exit(code)
}

func goroutinesLeft(deadline time.Time) string {
	for buf := make([]byte, 1<<20); ; runtime.Gosched() {
		var left []string
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "redlockd/client.") && !strings.Contains(stack, "TestMain") {
				left = append(left, stack)
			}
		}
		if left == nil || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

// A program that imports this package also imports these packages, and no others.
func TestDependencies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/redlockd/redlockd/"
	allowed := map[string]bool{module + "client": true, module + "ipc": true, module + "redlock/boottime": true, "golang.org/x/sys/unix": true}
	for path := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(path, "/")
		if strings.Contains(first, ".") && !allowed[path] {
			t.Errorf("this package depends on %s", path)
		}
	}
}

func TestSocketPath(t *testing.T) {
	t.Setenv("REDLOCK_SOCKET", "")
	if got := socketPath(""); got != DefaultSocket {
		t.Errorf("socketPath(\"\") = %q, want %q", got, DefaultSocket)
	}
	t.Setenv("REDLOCK_SOCKET", "/tmp/other")
	if got := socketPath(""); got != "/tmp/other" {
		t.Errorf("socketPath(\"\") = %q, want that of the environment", got)
	}
	if got := socketPath("/tmp/given"); got != "/tmp/given" {
		t.Errorf("socketPath = %q, want what was given", got)
	}
}

func TestDialWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, path := range []string{stale, filepath.Join(dir, "missing"), strings.Repeat("x", 300)} {
		_, err := Dial(t.Context(), path)
		want(t, "dial", err, ErrUnavailable)
		if err != nil && strings.Count(err.Error(), path) != 1 {
			t.Errorf("error %q does not name the socket once", err)
		}
	}
	want(t, "permission", dialError(t.Context(), "/s", &os.PathError{Err: fs.ErrPermission}), ErrDenied)
}

// Without a check, the kernel would answer "invalid argument", which says nothing about the length.
func TestDialPathTooLong(t *testing.T) {
	path := "/" + strings.Repeat("x", ipc.MaxSocketPath)
	_, err := Dial(t.Context(), path)
	want(t, "dial", err, ErrUnavailable)
	if want := fmt.Sprintf("the path has %d bytes; a socket's may have at most %d", ipc.MaxSocketPath+1, ipc.MaxSocketPath); !strings.Contains(err.Error(), want) {
		t.Errorf("dial: %v, want %q in it", err, want)
	}
	_, err = Dial(t.Context(), path[:ipc.MaxSocketPath])
	want(t, "dial", err, ErrUnavailable)
	if want := "nobody listens there"; !strings.Contains(err.Error(), want) {
		t.Errorf("dial of %d bytes: %v, want %q in it", ipc.MaxSocketPath, err, want)
	}
}

// An empty path means the path of the environment. Options are applied.
func TestDialOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("REDLOCK_SOCKET", path)
	accepted := async(func() (net.Conn, error) { return greet(l) })
	c, err := Dial(t.Context(), "", WithPatience(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer accepted.must(t).Close()
	if c.core.patience != time.Hour || c.path != path {
		t.Errorf("patience %v at %s, want 1h at %s", c.core.patience, c.path, path)
	}
}

func TestDialBoundByContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path) // never accepts, like a daemon that is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, path)
	want(t, "a daemon that hangs", err, context.DeadlineExceeded)
	_, err = Dial(ctx, path)
	want(t, "a context that is done", err, context.DeadlineExceeded)
	if errors.Is(err, ErrUnavailable) {
		t.Errorf("a context that is done: %v, and it was not tried", err)
	}
}

func TestHelloIsRefused(t *testing.T) {
	for answer, wanted := range map[string]error{
		"@0 ERR SYNTAX : version 1 is none of mine": ErrInvalid,
		"ERR LIMIT : 1000 connections of this user": ErrLimit,
		"ERR DENIED : no rule allows it":            ErrDenied,
		"ERR SHUTDOWN":                              ErrShutdown,
		"SSH-2.0-OpenSSH_9.2p1":                     ErrUnavailable,
		"BYE resume=1000":                           ErrShutdown,
		"":                                          ErrUnavailable,
		"@0 OK version=1\n@0 OK version=1 : said it twice": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := newScripted(t)
			go func() {
				d.accept()
				d.line()
				d.conn.Write([]byte(answer + "\n"))
				d.conn.Close()
			}()
			err := c.open(t.Context())
			if !errors.Is(err, wanted) {
				t.Errorf("%q: error %v, want %v", answer, err, wanted)
			}
			if wanted == ErrInvalid && errors.Is(err, ErrUnavailable) {
				t.Errorf("%q: error %v, and there is a daemon", answer, err)
			}
			synctest.Wait()
			if err == nil {
				want(t, answer, c.Err(), ErrUnavailable)
			}
			c.Close()
		})
	}
}

func TestGarbage(t *testing.T) {
	for name, line := range map[string]string{
		"an empty line":               "",
		"a word":                      "hello",
		"no verdict":                  "@0 MAYBE",
		"a bad tag":                   "@é OK",
		"a tag that was never used":   "@zz OK",
		"a tag that is not in flight": "@0 OK",
		"a tag in another writing":    "@01 OK",
		"an enormous tag":             "@zzzzzzzzzzzzzzzz OK",
		"a word that is no field":     "@1 OK lock",
		"a bad escape":                "@1 OK lock=%zz",
		"no code":                     "@1 ERR",
		"a control":                   "@1 OK lock=\x00",
		"a long line":                 "@1 OK lock=" + strings.Repeat("x", 5000),
		"a very long line":            "@1 OK lock=" + strings.Repeat("x", 20000),
		"a grant without a lease":     "@1 OK lock=job ttl=1000 deadline=1001000",
		"a grant without a deadline":  "@1 OK lock=job lease=def ttl=1000",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc")
				checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
				d.expect("@0 CHECK lease=abc")
				locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
				d.expect("@1 LOCK job owner=2 id=t.2")
				if line == "@0 OK" {
					d.say(grant("0", "job", "abc", 0, ttl))
					checked.must(t)
				}
				go d.conn.Write([]byte(line + "\n"))
				synctest.Wait()
				want(t, "Err", c.Err(), ErrUnavailable)
				if c.Err() == nil || !strings.Contains(c.Err().Error(), "protocol") {
					t.Errorf("Err %q does not say what is wrong", c.Err())
				}
				_, err := locked.wait()
				want(t, "lock", err, ErrUnavailable)
				want(t, "the lease", endCause(l.Context()), ErrLost)
			})
		})
	}
}

func TestNewerDaemonsAreUnderstood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		d.say("NEWS weather=fine : an event of version 1.9", "BACK", "LOST lock=job lease=unknown reason=max",
			"@0 - line=1", "@0 OK mood=good : and fields")
		pinged.must(t)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, kept := d.lock(c, "job", "abc"), d.lock(c, "kept", "def", WithHold(HoldTTL))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waiting := async(func() (*Lease, error) { return c.Lock(ctx, "other") })
		d.line()
		if c.Err() != nil {
			t.Errorf("Err %v before Close, want nil", c.Err())
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			select {
			case <-c.Done():
			default:
				t.Error("Close has not waited for all that the Client has started")
			}
		}
		_, err := waiting.wait()
		want(t, "a waiting lock", err, ErrClosed)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a waiting lock: %v, and it was not its deadline", err)
		}
		for _, l := range []*Lease{l, kept} {
			cause := endCause(l.Context())
			want(t, "cause", cause, ErrLost)
			want(t, "cause", cause, ErrClosed)
		}
		want(t, "Err", c.Err(), ErrClosed)
		want(t, "another lock", lockErr(c.Lock(t.Context(), "job")), ErrClosed)
		time.Sleep(time.Minute) // no timer is left that could write
		nothingLeft(t, c)
	})
}

// The client reads the daemon's last lines before the end of the connection, even if its writes
// fail.
func TestLastWordsAfterFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		c.failWrites(errors.New("broken pipe"))
		d.say("@0 OK")
		asked.must(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.greet() // the lock goes to a new connection
		d.at("the end of the connection", byeTimeout)
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.say(grant("0", "job", "abc", byeTimeout, ttl))
		locked.must(t)
	})
}

// The daemon may read the end of the input, and answer, before the connection has ended. Its
// CANCELLED then does not hide ErrClosed.
func TestCloseIsNoCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		lock := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		c.stop() // a step of Close
		d.say("@0 ERR CANCELLED lock=job : cancelled by the client: the input ended while it waited")
		d.conn.Close()
		_, err := lock.wait()
		want(t, "a waiting lock", err, ErrClosed)
	})
}

// If a grant crosses with Close, its lease ends before the daemon sees the end of the connection,
// so nobody uses it then.
func TestGrantThatCrossesWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		lock := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		keep := async(func() (*Lease, error) { return c.Lock(t.Context(), "kept", WithHold(HoldTTL)) })
		d.expect("@1 LOCK kept hold=ttl owner=2 id=t.2")
		c.stop() // a step of Close
		d.say(grant("0", "job", "abc", 0, ttl), grant("1", "kept", "def", 0, ttl))
		_, err := lock.wait()
		want(t, "the lock", err, ErrClosed)
		if kept := keep.must(t); endCause(kept.Context()) != nil {
			t.Errorf("the lease with HoldTTL ended: %v", endCause(kept.Context()))
		}
		c.Close()
		nothingLeft(t, c)
	})
}

func TestWriteToClosedSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := clientOf(t, ours)
	c.send()
	c.send()
	c.mu.Lock()
	defer c.mu.Unlock()
	want(t, "the first request", c.core.mute, syscall.EPIPE)
	if len(c.core.out) > 0 || c.link.writing {
		t.Errorf("%q is kept for a socket that is closed", c.core.out)
	}
}

// clientOf returns a Client that uses conn, and does not read it.
func clientOf(t *testing.T, conn net.Conn) *Client {
	c := newClient(nil, boottime.Exact)
	c.enter()
	c.core.connected(daemonClock{}, false)
	c.link = newLink(conn)
	c.link.number = c.core.link
	c.exit()
	t.Cleanup(func() { c.run(nil) })
	return c
}

// send sends a PING.
func (c *Client) send() {
	c.enter()
	c.core.background(newCall(ipc.VerbPing, ""))
	c.exit()
}

// If a socket is full when its peer closes it, the next write fails.
func TestWriteToFullSocketThatIsClosed(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	c := clientOf(t, ours)
	c.send() // a pipe takes nothing at once
	theirs.Close()
	c.background.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	want(t, "the second request", c.core.mute, io.ErrClosedPipe)
}
