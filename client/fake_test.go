package client

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a daemon that sends only what the test tells it to.
type scripted struct {
	t     testing.TB
	conn  net.Conn // the connection that was accepted last
	in    *bufio.Reader
	start time.Time
	slept atomic.Int64  // nanoseconds for which the host was suspended
	dials chan net.Conn // connections that were not accepted yet
	down  atomic.Bool   // connections are refused
	tries atomic.Int32  // attempts to connect while down
}

// dialScripted connects a Client to a scripted daemon over a net.Pipe, for synctest.
func dialScripted(t testing.TB, opts ...DialOption) (*Client, *scripted) {
	t.Helper()
	c, d := newScripted(t)
	for _, opt := range opts {
		opt(c)
	}
	opened := async(func() (int, error) { return 0, c.open(t.Context()) })
	d.greet()
	opened.must(t)
	t.Cleanup(func() {
		d.conn.Close()
		c.Close()
	})
	return c, d
}

func newScripted(t testing.TB) (*Client, *scripted) {
	d := &scripted{t: t, start: time.Now(), dials: make(chan net.Conn, 100)}
	c := newClient(d.dial, d.boottime)
	c.core.idPrefix = "t."
	return c, d
}

var errNobody = fmt.Errorf("%w: nobody listens", ErrUnavailable)

func (d *scripted) dial(context.Context) (net.Conn, error) {
	if d.down.Load() {
		d.tries.Add(1)
		return nil, errNobody
	}
	ours, theirs := net.Pipe()
	d.dials <- theirs
	return ours, nil
}

// accept accepts the next connection.
func (d *scripted) accept() {
	d.conn = <-d.dials
	d.in = bufio.NewReader(d.conn)
}

// greet accepts the next connection and answers HELLO.
func (d *scripted) greet() {
	d.t.Helper()
	d.accept()
	d.expect("@0 HELLO 1")
	d.say("@0 OK version=1")
}

// outage refuses connections for length, and then greets the next one.
func (d *scripted) outage(length time.Duration) {
	d.t.Helper()
	d.stop()
	time.Sleep(length)
	d.down.Store(false)
	d.greet()
}

// hangUp closes the connection, as the kernel does for a killed daemon. It returns when the client
// has noticed.
func (d *scripted) hangUp() {
	d.conn.Close()
	synctest.Wait()
}

// stop is hangUp, and refuses connections from then on.
func (d *scripted) stop() {
	d.down.Store(true)
	d.hangUp()
}

// boottime is the client's CLOCK_BOOTTIME. It starts with the test, at bootAt.
func (d *scripted) boottime() time.Duration {
	return bootAt + d.elapsed() + time.Duration(d.slept.Load())
}

func (d *scripted) elapsed() time.Duration { return time.Since(d.start) }

// at checks that want has passed since the test began.
func (d *scripted) at(what string, want time.Duration) {
	d.t.Helper()
	if got := d.elapsed(); got != want {
		d.t.Errorf("%s at %v, want %v", what, got, want)
	}
}

// lock takes a lock, and grants it at once for ttl (10 s).
func (d *scripted) lock(c *Client, name, lease string, opts ...Option) *Lease {
	d.t.Helper()
	locked := async(func() (*Lease, error) {
		return c.Lock(d.t.Context(), name, append(opts, WithTTL(10*time.Second))...)
	})
	tag, _, _ := strings.Cut(d.line(), " ")
	d.say(grant(tag[1:], name, lease, d.elapsed(), 10*time.Second))
	return locked.must(d.t)
}

// bootAt is the client's CLOCK_BOOTTIME when a test begins.
const bootAt = 1000 * time.Second

// expect reads the next line and checks that it is want.
func (d *scripted) expect(want string) {
	d.t.Helper()
	if got := d.line(); got != want+"\n" {
		d.t.Errorf("the daemon read %q, want %q", got, want)
	}
}

// answerUnlock answers the next UNLOCK of the lease abc, and checks that nothing is left.
func (d *scripted) answerUnlock(c *Client) {
	d.t.Helper()
	d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
	synctest.Wait()
	nothingLeft(d.t, c)
}

// expectTagged reads the next line and checks that it is want after a tag. It returns the tag, with
// its @.
func (d *scripted) expectTagged(want string) string {
	d.t.Helper()
	tag, got, _ := strings.Cut(d.line(), " ")
	if got != want+"\n" {
		d.t.Errorf("the daemon read %q after the tag %s, want %q", got, tag, want)
	}
	return tag
}

// tagged reads the next line and returns its tag, without the @, and the rest.
func (d *scripted) tagged() (tag, rest string) {
	tag, rest, _ = strings.Cut(strings.TrimSuffix(d.line(), "\n"), " ")
	return strings.TrimPrefix(tag, "@"), rest
}

// ms formats a duration in milliseconds, rounded up, as requests do.
func ms(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// line returns "" if the connection has ended.
func (d *scripted) line() string {
	line, _ := d.in.ReadString('\n')
	return line
}

// say sends lines in one write.
func (d *scripted) say(lines ...string) {
	d.t.Helper()
	var all []byte
	for _, line := range lines {
		all = append(all, line+"\n"...)
	}
	if _, err := d.conn.Write(all); err != nil {
		d.t.Errorf("the daemon says %q: %v", lines, err)
	}
}

// grant is the OK to the LOCK with that tag. The lease is valid for left, from the instant after.
func grant(tag, name, lease string, after, left time.Duration) string {
	return fmt.Sprintf("@%s OK lock=%s lease=%s fence=77 ttl=%d deadline=%d", tag, name, lease,
		left.Milliseconds(), (bootAt + after + left).Milliseconds())
}
