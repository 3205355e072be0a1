package server

import (
	"bufio"
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// echoing is a session that answers everything at once.
type echoing struct{}

func (echoing) InputEnded(bool) {}
func (echoing) Close()          {}
func (echoing) Begin(call *Call) Work {
	call.Reply(call.OK().Strs("names", call.Names...).Strs("words", call.Words...))
	return nil
}

// FuzzServer: each line that is not blank gets one well-formed answer, whatever is sent in whatever
// pieces.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"PING\n", "\n\r\n \t\n@a PING\r\nLICK\nPING", "LOCK a,b,%2c x=\n@\n\x00\n\xff\n", strings.Repeat("x", ipc.MaxLine-1) + "\nPING\n",
		strings.Repeat("@a ", 3000) + "\nPING\n", strings.Repeat(" ", 5000) + "\n" + strings.Repeat("PING\n", 5000),
	} {
		f.Add([]byte(seed), uint16(7))
	}
	s := &Server{Open: func(*Conn) (Session, error) { return echoing{}, nil }}
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		file, server := socketPair(t)
		defer file.Close()
		client, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.ServeConn(server)
		}()
		go func() {
			for part := range slices.Chunk(in, int(piece)+1) {
				client.Write(part) // an error shows as missing answers
			}
			client.(*net.UnixConn).CloseWrite()
		}()
		answers := 0
		for lines := bufio.NewScanner(client); lines.Scan(); answers++ {
			var r ipc.Response
			if err := ipc.ParseResponse(lines.Bytes(), &r); err != nil {
				t.Errorf("the answer %q: %v", lines.Text(), err)
			}
		}
		if want := wantAnswers(in); answers != want {
			t.Errorf("%d answers, want %d to %q", answers, want, in)
		}
		<-over
	})
}

// wantAnswers counts the lines that are not blank, and a last partial line that is already too
// long.
func wantAnswers(in []byte) (n int) {
	for line := range bytes.Lines(in) {
		body, whole := bytes.CutSuffix(line, []byte("\n"))
		if len(body) >= ipc.MaxLine || whole && !isBlank(body) {
			n++
		}
	}
	return n
}
