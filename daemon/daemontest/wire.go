package daemontest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Wire is a client connection, such as nc -U makes.
type Wire struct {
	T    *testing.T
	Conn net.Conn
	In   *bufio.Reader // reads from Conn
}

// NewWire returns the client's side of a connection.
func NewWire(t *testing.T, conn net.Conn) *Wire {
	return &Wire{T: t, Conn: conn, In: bufio.NewReader(conn)}
}

// Send sends a line.
func (w *Wire) Send(format string, args ...any) {
	w.T.Helper()
	if _, err := fmt.Fprintf(w.Conn, format+"\n", args...); err != nil {
		w.T.Fatalf("send: %v", err)
	}
}

// Line reads one line.
func (w *Wire) Line() string {
	w.T.Helper()
	w.Conn.SetReadDeadline(time.Now().Add(Patience))
	line, err := w.In.ReadString('\n')
	if err != nil {
		w.T.Fatalf("no line: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Want reads one line, which must match a pattern. It returns the groups.
func (w *Wire) Want(pattern string) []string {
	w.T.Helper()
	return Matches(w.T, w.Line(), pattern)
}

// Say sends a request, whose answer must match a pattern. It returns the groups.
func (w *Wire) Say(request, pattern string) []string {
	w.T.Helper()
	w.Send("%s", request)
	return w.Want(pattern)
}

// EndInput ends the client's side of a socket. The client still reads.
func (w *Wire) EndInput() {
	w.T.Helper()
	if err := w.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		w.T.Fatal(err)
	}
}

// Ends reads the end of the connection.
func (w *Wire) Ends() {
	w.T.Helper()
	w.Conn.SetReadDeadline(time.Now().Add(Patience))
	if line, err := w.In.ReadString('\n'); err == nil || os.IsTimeout(err) {
		w.T.Fatalf("got %q, %v; want the end of the connection", line, err)
	}
}

// Until repeats a request until its answer matches. (STATUS, LIST and WHO only answer: no event
// reports when their answers change.)
func (w *Wire) Until(request, pattern string) {
	w.T.Helper()
	re := regexp.MustCompile(pattern)
	Eventually(w.T, request+" answers "+pattern, func() bool {
		w.Send("%s", request)
		var all strings.Builder
		for {
			line := w.Line()
			all.WriteString(line + "\n")
			if strings.HasPrefix(line, "OK") || strings.HasPrefix(line, "ERR") {
				return re.MatchString(all.String())
			}
		}
	})
}

// Matches returns the groups of a pattern that must match a line.
func Matches(t *testing.T, line, pattern string) []string {
	t.Helper()
	groups := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(line)
	if groups == nil {
		t.Fatalf("got  %s\nwant %s", line, pattern)
	}
	return groups[1:]
}

// AnyGrant is the pattern of a grant: the lease id, the ttl and the deadline are its groups.
const AnyGrant = `OK lock=\S+ lease=(\S+) fence=\d+ ttl=(\d+) deadline=(\d+)(?: guard=\d+)?`

// GrantOf returns the pattern of a grant of these locks.
func GrantOf(names string) string { return strings.Replace(AnyGrant, `lock=\S+`, `lock=`+names, 1) }
