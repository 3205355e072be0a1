package redis

import (
	"context"
	"io"
	"net"
	"slices"
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
		topic, err := r.read(new(Reply))
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return whole, nil
		case err != nil:
			return whole, err
		case topic != "message":
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
		conn := newGuardedConn(redistest.Scripted{Reader: strings.NewReader(strings.Repeat(c.answer, c.times))}, 1, "")
		if _, err := conn.Write([]byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", 300))); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("got %v, want %q", err, c.fault)
		}
	}
}

// The driver gets only answers that it can take: it would panic because of the others. Guards
// guardedConn.checkAnswer.
func TestGuardedConnChecksAnswers(t *testing.T) {
	const ping, subscribe, confirmed = "*1\r\n$4\r\nPING\r\n", "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n", ">3\r\n+subscribe\r\n+x\r\n:1\r\n"
	for _, c := range []struct{ asked, answer, fault string }{
		{ping, "+PONG\r\n", ""},
		{ping, ">3\r\n+message\r\n+x\r\n+y\r\n+PONG\r\n", ""},
		{ping, confirmed, `a push about "subscribe", which nobody asked for`},
		{subscribe, confirmed, ""},
		{subscribe, "-NOPERM no\r\n", ""},
		{subscribe, "+QUEUED\r\n", "no confirmation in answer to SUBSCRIBE"},
		{subscribe, ":1\r\n", "no confirmation in answer to SUBSCRIBE"},
		{subscribe + ping, confirmed + "+PONG\r\n", ""},
		{subscribe + ping, confirmed + confirmed, `a push about "subscribe", which nobody asked for`},
		{"", confirmed, "an answer without a request"},
		{ping, "+PONG\r\n+PONG\r\n", "an answer without a request"},
	} {
		conn := newGuardedConn(redistest.Scripted{Reader: strings.NewReader(c.answer)}, 1, "")
		if _, err := conn.Write([]byte(c.asked)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q in answer to %q: got %v, want %q", c.answer, c.asked, err, c.fault)
		}
	}
}

// A node that announces a long list costs memory only for what it sends, and an earlier, longer list is
// not kept. Guards replyReader.read, replyReader.readList.
func TestReplyReaderMemory(t *testing.T) {
	var reply Reply
	long := newReplyReader(strings.NewReader("*131072\r\n:1\r\n"))
	if _, err := long.read(&reply); err == nil || cap(reply.Array) > 2*maxSpareItems {
		t.Errorf("a list that was only announced: %v, memory for %d elements", err, cap(reply.Array))
	}
	both := newReplyReader(strings.NewReader("*2\r\n+a\r\n*2\r\n+b\r\n+c\r\n*1\r\n+d\r\n"))
	for range 2 {
		if _, err := both.read(&reply); err != nil {
			t.Fatal(err)
		}
	}
	if rest := reply.Array[:cap(reply.Array)][1:]; len(reply.Array) != 1 || slices.ContainsFunc(rest, func(r Reply) bool { return r.Array != nil || r.Str != "" }) {
		t.Errorf("after a shorter list: %+v, and behind it %+v", reply.Array, rest)
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
