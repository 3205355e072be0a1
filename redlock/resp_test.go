package redlock

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// respSamples are messages as Redis sends them, and some that are none. FuzzAnswers
// has more of them.
var respSamples = []struct {
	text  string
	whole int64  // answers
	fault string // in the error
}{
	{"+OK\r\n:1\r\n:-1\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n-ERR x\r\n*0\r\n%0\r\n", 11, ""},
	{"*2\r\n*1\r\n$1\r\nx\r\n%1\r\n+a\r\n:1\r\n=7\r\ntxt:abc\r\n", 2, ""},
	{">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n:1\r\n>1\r\n+tracking-redir-broken\r\n>0\r\n", 1, "a push about"},
	{">2\r\n+invalidate\r\n_\r\n", 0, ""},
	{">2\r\n+invalidates\r\n_\r\n", 0, `a push about "invalidates"`},
	{">2\r\n*1\r\n+invalidate\r\n:1\r\n", 0, `a push about ""`},
	{">2\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n_\r\n", 0, "a push about"},
	{":9223372036854775807\r\n", 1, ""},
	{":9223372036854775808\r\n", 0, "no number"},
	{":1-\r\n", 0, "no number"},
	{":\r\n", 0, "no number"},
	{":-\r\n", 0, "no number"},
	{"*131073\r\n", 0, "more than 131072 parts"},
	{"*1\r\n*131072\r\n", 0, "more than 131072 parts"},
	{"%65537\r\n", 0, "more than 131072 parts"},
	{"$8388609\r\n", 0, "a string of 8388609 bytes"},
	{"$8388608\r\n", 0, ""},
	{strings.Repeat("*1\r\n", 8) + ":1\r\n", 1, ""},
	{strings.Repeat("*1\r\n", 9), 0, "8 deep"},
	{"+" + strings.Repeat("x", respMaxText) + "\r\n", 1, ""},
	{"+" + strings.Repeat("x", respMaxText+1), 0, "a line of more than"},
	{"$1\r\nxx\r\n", 0, "CR and LF"},
	{"+x\n", 0, "CR and LF"},
	{"+x\r\r\n", 0, "CR and LF"},
	{"_x\r\n", 0, "null with"},
	{"*1\r\n>0\r\n", 0, "a push within"},
	{"$-2\r\n", 0, "below 0"},
	{"%-1\r\n", 0, "below 0"},
	{">-1\r\n", 0, "below 0"},
	{"?", 0, "begins with"},
}

// Messages are counted and faults found however they are cut into pieces, and no later
// than their line ends. Guards respScanner.
func TestRespScanner(t *testing.T) {
	for _, sample := range respSamples {
		for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
			whole, err := scanPieces([]byte(sample.text), piece)
			if sample.fault == "" && err != nil || sample.fault != "" && (err == nil || !strings.Contains(err.Error(), sample.fault)) {
				t.Errorf("%.60q in pieces of %d: got %v, want %q", sample.text, piece, err, sample.fault)
			}
			if err == nil && whole != sample.whole {
				t.Errorf("%.60q in pieces of %d: got %d answers, want %d", sample.text, piece, whole, sample.whole)
			}
		}
	}
}

func scanPieces(text []byte, piece int) (whole int64, err error) {
	var s respScanner
	for len(text) > 0 && err == nil {
		n := min(piece, len(text))
		err = s.scan(text[:n])
		text = text[n:]
	}
	return s.whole, err
}

// A node that says more than is good between two questions, in answers of which each is
// small enough, is stopped.
func TestGuardedConnBoundsTrips(t *testing.T) {
	for _, c := range []struct {
		answer string
		times  int
		fault  string
	}{
		{"$1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n", 20, "more than 16777216 bytes at once"},
		{"*1000\r\n" + strings.Repeat(":1\r\n", 1000), 300, "more than 262144 parts at once"},
	} {
		conn := &guardedConn{Conn: scripted{strings.NewReader(strings.Repeat(c.answer, c.times))}}
		if _, err := conn.Write([]byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", 300))); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("got %v, want %q", err, c.fault)
		}
	}
}

// What a node said before it hung up tells more than that it did, also to whoever was
// writing at that moment; and where it said nothing, that it did is told.
func TestGuardedConnHungUp(t *testing.T) {
	for said, reason := range map[string]string{
		"-ERR max number of clients reached\r\n": "ERR max number of clients reached",
		"":                                       "it ended the connection before it answered the log-in (EOF)",
	} {
		_, err := dialRedis(t.Context(), NodeOptions{Name: "a", Address: "unix:/nowhere",
			Dial: func(context.Context) (net.Conn, error) { return hungUp{scripted{strings.NewReader(said)}}, nil }})
		if err == nil || err.Error() != reason {
			t.Errorf("of a node that said %q: got %v, want %s", said, err, reason)
		}
	}
}

// hungUp is a connection that a node has ended.
type hungUp struct{ scripted }

func (hungUp) Write([]byte) (int, error) { return 0, syscall.ECONNRESET }

// scripted is a connection to a node whose answers are known.
type scripted struct{ io.Reader }

func (scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (scripted) Close() error                     { return nil }
func (scripted) LocalAddr() net.Addr              { return nil }
func (scripted) RemoteAddr() net.Addr             { return nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetReadDeadline(time.Time) error  { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }

// hello is how a Redis answers the log-in.
const hello = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"

// errScriptOver is read where the answers are at their end.
var errScriptOver = errors.New("the script is over")

// answered is what the driver makes of bytes, in answer to so many commands.
func answered(t *testing.T, answers []byte, commands int) ([]Reply, error) {
	in := io.MultiReader(strings.NewReader(hello), bytes.NewReader(answers), failing{})
	conn, err := dialRedis(t.Context(), NodeOptions{Name: "a", Address: "unix:/nowhere",
		Dial: func(context.Context) (net.Conn, error) { return scripted{in}, nil }})
	if err != nil {
		t.Fatal(err) // it is well up to here
	}
	defer conn.Close()
	group, replies := make([]Command, commands), make([]Reply, commands)
	for i := range group {
		group[i] = Command{"PING"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return replies, conn.Do(ctx, group, replies)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errScriptOver }
