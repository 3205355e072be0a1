package server

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// holding is a session that answers a verb at once unless it Waits. It answers the others when free
// is closed.
type holding struct {
	*table
	free <-chan struct{}
}

func (holding) InputEnded(bool) {}
func (holding) Close()          {}

func (h holding) Begin(call *Call) Work {
	if call.Verb.Waits() {
		return workFunc(func() {
			<-h.free
			h.echo(call)
		})
	}
	h.echo(call)
	return nil
}

func (holding) echo(call *Call) {
	call.Reply(call.OK().Strs("names", call.Names...).Strs("words", call.Words...))
}

// FuzzRestore checks that restarts do not change the answers. It restarts after any byte of the
// input, with or without waiting requests.
func FuzzRestore(f *testing.F) {
	long := strings.Repeat("x", ipc.MaxLine)
	for _, seed := range []string{
		"PING\nWHO a\nPING\n@a WHO b\n@b PING\nLICK\nUNLOCK c\n",
		"LOCK a\nLOCK b\n@c LOCK c\nPING\nLOCK d\nPING\n@e PING\n",
		"LOCK a\n" + long + "x\nPING\n@a " + long + "\n@b PING\n" + long,
		"\n \r\n\t\n@a PING\r\nWHO a\n  \nPING\n", strings.Repeat("LOCK a\nUNLOCK a\nPING\n", 200),
	} {
		f.Add(seed, uint16(len(seed)/3), uint16(len(seed)/2), true)
		f.Add(seed, uint16(len(seed)-1), uint16(5), false)
	}
	f.Fuzz(func(t *testing.T, in string, a, b uint16, hold bool) {
		if len(in) > 32<<10 {
			return // the server does not read that far while requests wait
		}
		cuts := []int{min(int(a), len(in)), min(int(b), len(in))}
		slices.Sort(cuts)
		sameAnswers(t, answersTo(t, in, cuts, hold), answersTo(t, in, nil, false))
	})
}

// TestRestoreAnywhere restarts at every byte, and at pairs of bytes.
func TestRestoreAnywhere(t *testing.T) {
	const in = "LOCK a\nPING\n@a LOCK b\n \n@b PING\nLICK\nUNLOCK c\nPING\n"
	want := answersTo(t, in, nil, false)
	for a := range len(in) + 1 {
		for b := a; b <= len(in); b += 5 + a%7 {
			sameAnswers(t, answersTo(t, in, []int{a, b}, a%4 > 0), want)
		}
	}
}

// answersTo sends in, with a restart at each cut. With hold, the Works last until the last restart.
func answersTo(t *testing.T, in string, cuts []int, hold bool) []string {
	here, there := net.Pipe()
	defer here.Close()
	here.SetDeadline(time.Now().Add(patience))
	heard := make(chan []string, 1)
	go func() { heard <- readAnswers(here, wantAnswers([]byte(in))) }()
	tab, from := newTable(), 0
	held := make(chan struct{})
	defer close(held) // their answers are dropped
	free := make(chan struct{})
	close(free)
	for _, to := range cuts {
		s := serveTable(t, tab, there, map[bool]chan struct{}{true: held, false: free}[hold])
		say(t, here, in[from:to])
		freeze(t, s, FreezeOptions{Keep: keepAll, Seal: tab.seal})
		there.SetReadDeadline(time.Time{})
		from = to
	}
	s := serveTable(t, tab, there, free)
	say(t, here, in[from:])
	answers := await(t, heard, "the answers")
	here.Close()
	if err := s.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if tab.mu.Lock(); len(tab.open) > 0 || slices.ContainsFunc(tab.log, isDefect) {
		t.Errorf("open are %v, in the end of %q", tab.open, tab.log)
	}
	tab.mu.Unlock()
	return answers
}

func isDefect(record string) bool { return strings.HasPrefix(record, "DEFECT") }

// serveTable serves the connection as the table has recorded it.
func serveTable(t *testing.T, tab *table, nc net.Conn, free <-chan struct{}) *Server {
	s := &Server{Open: func(*Conn) (Session, error) { return holding{tab, free}, nil }}
	tab.restore(t, s, nc)
	return s
}

// readAnswers reads n answers, or all until the end.
func readAnswers(nc net.Conn, n int) (answers []string) {
	for lines := bufio.NewScanner(nc); len(answers) < n && lines.Scan(); {
		answers = append(answers, lines.Text())
	}
	return answers
}

// sameAnswers compares answers without a tag in order. It only counts the answers to a tag that was
// sent twice: timing decides which of the two requests is refused.
func sameAnswers(t *testing.T, got, want []string) {
	t.Helper()
	gotPlain, gotTags := sortAnswers(got)
	wantPlain, wantTags := sortAnswers(want)
	if !slices.Equal(gotPlain, wantPlain) {
		t.Errorf("without a tag\n got %.300q\nwant %.300q", gotPlain, wantPlain)
	}
	if !maps.Equal(gotTags, wantTags) {
		t.Errorf("with a tag\n got %.300v\nwant %.300v", gotTags, wantTags)
	}
}

// sortAnswers returns the answers without a tag, and a map of those with a tag. The map has the
// number of answers if requests share a tag.
func sortAnswers(answers []string) (plain []string, tagged map[string]string) {
	count := map[string]int{}
	tagged = map[string]string{}
	for _, answer := range answers {
		tag, rest, _ := strings.Cut(answer, " ")
		if tag[0] != '@' {
			plain = append(plain, answer)
			continue
		}
		count[tag]++
		tagged[tag] = rest
	}
	for tag, n := range count {
		if n > 1 {
			tagged[tag] = fmt.Sprint(n, " answers")
		}
	}
	return plain, tagged
}
