package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Dial waits for a daemon until the deadline of its context, or for WithDialWait. Without either it
// makes one attempt.
func TestDialWaits(t *testing.T) {
	const never = time.Hour
	for _, test := range []struct {
		name     string
		deadline time.Duration // of the context; 0: none
		options  []DialOption
		comes    time.Duration // when the daemon comes
		ends     time.Duration // when Dial fails; 0: it succeeds
	}{
		{"no deadline", 0, nil, time.Second, time.Nanosecond},
		{"a deadline", 10 * time.Second, nil, 7 * time.Second, 0},
		{"a deadline, and no daemon", 10 * time.Second, nil, never, 10 * time.Second},
		{"WithDialWait", 0, []DialOption{WithDialWait(10 * time.Second)}, 7 * time.Second, 0},
		{"WithDialWait, and no daemon", 0, []DialOption{WithDialWait(10 * time.Second)}, never, 10 * time.Second},
		{"WithDialWait before the deadline", time.Minute, []DialOption{WithDialWait(10 * time.Second)}, never, 10 * time.Second},
		{"WithDialWait of 0", 10 * time.Second, []DialOption{WithDialWait(0)}, time.Second, time.Nanosecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := newScripted(t)
				for _, opt := range test.options {
					opt(c)
				}
				defer c.Close()
				d.down.Store(true)
				ctx, start := t.Context(), time.Now()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				opened := async(func() (struct{}, error) { return struct{}{}, c.open(ctx) })
				if test.ends > 0 {
					_, err := opened.wait()
					want(t, "dial", err, ErrUnavailable)
					if took := time.Since(start); took != test.ends.Truncate(time.Second) {
						t.Errorf("Dial failed after %v, want %v", took, test.ends)
					}
					if overdue := test.deadline == test.ends; errors.Is(err, context.DeadlineExceeded) != overdue {
						t.Errorf("error %v, want one that says that the deadline has passed: %v", err, overdue)
					}
					return
				}
				time.Sleep(test.comes)
				d.down.Store(false)
				d.greet()
				opened.must(t)
				if late := time.Since(start) - test.comes; late > 160*time.Millisecond {
					t.Errorf("Dial returned %v after the daemon came", late)
				}
			})
		})
	}
}

// Dial waits while a daemon may still come: none, one that stops, or one that ends during HELLO. A
// refusal is final.
func TestDialDoesNotWaitInVain(t *testing.T) {
	for answer, waits := range map[string]bool{
		"":                      true,
		"BYE resume=1000":       true,
		"ERR SHUTDOWN":          true,
		"ERR LIMIT : full":      false,
		"ERR DENIED : no rule":  false,
		"@0 ERR SYNTAX : no":    false,
		"SSH-2.0-OpenSSH_9.2p1": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := newScripted(t)
			defer c.Close()
			WithDialWait(time.Minute)(c)
			opened := async(func() (struct{}, error) { return struct{}{}, c.open(t.Context()) })
			d.accept()
			d.line()
			if answer != "" {
				d.conn.Write([]byte(answer + "\n"))
			}
			d.conn.Close()
			synctest.Wait()
			if opened.pending() != waits {
				t.Errorf("after %q Dial waits: %v, want %v", answer, !waits, waits)
			}
			if waits {
				d.greet()
				opened.must(t)
			}
		})
	}
	for number, waits := range map[syscall.Errno]bool{syscall.ENOENT: true, syscall.ECONNREFUSED: true, syscall.EAGAIN: true, syscall.EACCES: false, syscall.EINVAL: false, syscall.ENOTDIR: false} {
		if err := fmt.Errorf("dial: %w: %w", ErrUnavailable, number); mayComeLater(err) != waits {
			t.Errorf("after %v Dial waits: %v, want %v", err, !waits, waits)
		}
	}
}

// The end of the context ends Dial, also without a deadline.
func TestDialWaitIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := newScripted(t)
		defer c.Close()
		WithDialWait(time.Hour)(c)
		d.down.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		opened := async(func() (struct{}, error) { return struct{}{}, c.open(ctx) })
		synctest.Wait()
		cancel()
		_, err := opened.wait()
		want(t, "dial", err, context.Canceled)
		want(t, "dial", err, ErrUnavailable)
	})
}

// Dial names what a path is that is not a socket, and does not wait for it to become one.
func TestDialNamesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "file"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for path, says := range map[string]string{
		file: "it is not a socket, but a regular file",
		dir:  "it is not a socket, but a directory",
	} {
		_, err := Dial(ctx, path)
		want(t, path, err, ErrUnavailable)
		if wanted := "dial " + path + ": redlockd is not available: " + says; err == nil || err.Error() != wanted {
			t.Errorf("error %v, want %q", err, wanted)
		}
	}
	if _, err := Dial(ctx, socket, WithDialWait(0)); !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNotSocket) {
		t.Errorf("a stale socket: %v", err)
	}
	denied := dialError(ctx, "/s", &os.PathError{Err: syscall.EACCES})
	want(t, "a socket of others", denied, ErrDenied)
	if wanted := "dial /s: not allowed: this user may not open it: join the group of the socket (usermod -aG), and log in again (permission denied)"; denied.Error() != wanted {
		t.Errorf("error %q, want %q", denied, wanted)
	}
	for _, url := range []string{"tcp://127.0.0.1:6379", "unix:///run/redlockd/redlockd.sock"} {
		_, err := Dial(ctx, url)
		want(t, url, err, ErrInvalid)
	}
}
