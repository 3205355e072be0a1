package redis

import (
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/redlock/internal/redis/redistest"
)

// Messages are counted and faults found however the bytes are cut into pieces. A fault is found
// by the end of its line. Guards replyReader.
func TestReplyReader(t *testing.T) {
	for _, sample := range redistest.Samples {
		for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
			whole, err := readPieces([]byte(sample.Text), piece)
			if sample.Fault == "" && err != nil || sample.Fault != "" && (err == nil || !strings.Contains(err.Error(), sample.Fault)) {
				t.Errorf("%.60q in pieces of %d: got %v, want %q", sample.Text, piece, err, sample.Fault)
			}
			if err == nil && whole != sample.Whole {
				t.Errorf("%.60q in pieces of %d: got %d answers, want %d", sample.Text, piece, whole, sample.Whole)
			}
		}
	}
}

func readPieces(text []byte, piece int) (whole int64, err error) {
	r := newReplyReader(&pieces{text, piece})
	for {
		isAnswer, err := r.read(new(Reply))
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return whole, nil
		case err != nil:
			return whole, err
		case isAnswer:
			whole++
		}
	}
}

// pieces is a reader that returns at most this many bytes at once.
type pieces struct {
	text []byte
	most int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.most, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

// A node that sends too much between two questions is cut off, even if each answer is small
// enough.
func TestGuardedConnBoundsTrips(t *testing.T) {
	for _, c := range []struct {
		answer string
		times  int
		fault  string
	}{
		{"$1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n", 20, "more than 16777216 bytes at once"},
		{"*1000\r\n" + strings.Repeat(":1\r\n", 1000), 300, "more than 262144 parts at once"},
	} {
		conn := newGuardedConn(redistest.Scripted{Reader: strings.NewReader(strings.Repeat(c.answer, c.times))}, 1)
		if _, err := conn.Write([]byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", 300))); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("got %v, want %q", err, c.fault)
		}
	}
}

// If a node sent something before it hung up, the error contains that, also for a goroutine that
// was writing then. If it sent nothing, the error reports the hang-up.
func TestGuardedConnHungUp(t *testing.T) {
	for sent, reason := range map[string]string{
		"-ERR max number of clients reached\r\n": "ERR max number of clients reached: raise maxclients in its redis.conf, or end connections there (CLIENT LIST)",
		"":                                       "it ended the connection before it answered the login (EOF)",
	} {
		_, err := dialRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
			Dial: func(context.Context) (net.Conn, error) {
				return hungUp{redistest.Scripted{Reader: strings.NewReader(sent)}}, nil
			}})
		if err == nil || err.Error() != reason {
			t.Errorf("the node sent %q: got %v, want %s", sent, err, reason)
		}
	}
}

// hungUp is a connection that a node has ended.
type hungUp struct{ redistest.Scripted }

func (hungUp) Write([]byte) (int, error) { return 0, syscall.ECONNRESET }
