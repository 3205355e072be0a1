//go:build linux

package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a user that talks to the daemon with nc -U.
type terminal struct{ *process }

// nc connects to the daemon.
func (h *host) nc() *terminal {
	h.t.Helper()
	return &terminal{start(h.t, h.dir, "nc", "-U", h.socket)}
}

// ask sends a line and returns the next line of output.
func (n *terminal) ask(line string) string {
	n.t.Helper()
	n.send(line)
	return n.line()
}

// expect sends a line and checks that the answer begins with want.
func (n *terminal) expect(line, want string) string {
	n.t.Helper()
	got := n.ask(line)
	if !strings.HasPrefix(got, want) {
		n.t.Fatalf("%s\ngot  %s\nwant %s", line, got, want)
	}
	return got
}

// comes checks that the next line begins with want.
func (n *terminal) comes(want string) string {
	n.t.Helper()
	got := n.line()
	if !strings.HasPrefix(got, want) {
		n.t.Fatalf("got  %s\nwant %s", got, want)
	}
	return got
}

// lines sends a line and returns the whole answer: "-" lines, and the last line.
func (n *terminal) lines(line string) (all []string) {
	n.t.Helper()
	n.send(line)
	for {
		got := n.line()
		all = append(all, got)
		if !strings.HasPrefix(got, "- ") {
			return all
		}
	}
}

// field returns the value of key=value in a reply, or an empty text.
func field(reply, key string) string {
	for word := range strings.FieldsSeq(reply) {
		if word == ":" {
			break
		}
		if k, v, _ := strings.Cut(word, "="); k == key {
			return v
		}
	}
	return ""
}

// number returns a field that must be a number.
func number(t *testing.T, reply, key string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(field(reply, key), 10, 64)
	if err != nil {
		t.Fatalf("%s= is no number in: %s", key, reply)
	}
	return n
}

// waiters returns the number of LOCKs that wait at the daemon.
func (n *terminal) waiters() int64 {
	n.t.Helper()
	status := n.lines("STATUS")
	return number(n.t, status[len(status)-1], "waiters")
}

// bootTime returns CLOCK_BOOTTIME, the clock of the daemon's deadlines.
func bootTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
