package main

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A request without an answer is reported lateBound after the end of its wait, and not before.
func TestLateAnswerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		s := &session{conn: here, lines: make(chan string, 1)}
		go s.read() // ends with the connection
		go func() { // ends with the connection
			in := bufio.NewScanner(there)
			in.Scan()
			time.Sleep(time.Second + lateBound - time.Millisecond)
			there.Write([]byte("ERR HELD\n"))
			for in.Scan() {
			}
		}()
		if h, err := s.lock([]string{"x"}, exclusive, time.Second, time.Second); h != nil || err != nil {
			t.Errorf("answered 1 ms before the bound: %v, %v; want a refusal", h, err)
		}
		start := time.Now()
		if _, err := s.lock([]string{"x"}, exclusive, time.Second, time.Second); !errors.Is(err, errLate) || time.Since(start) != time.Second+lateBound {
			t.Errorf("never answered: %v after %v, want errLate after %v", err, time.Since(start), time.Second+lateBound)
		}
		s.close()
		there.Close()
	})
}

// A worker prints a late answer, and the nemesis counts it as a violation.
func TestLateAnswerIsViolation(t *testing.T) {
	var text bytes.Buffer
	o := &output{writer: &text}
	o.printLine(clientLine{Late: "LOCK x"})
	w := &world{}
	if err := w.hear(3, text.Bytes()); err != nil || len(w.failed) != 1 || w.failed[0].what != "LOCK x" {
		t.Errorf("heard %v, %v; want the request", w.failed, err)
	}
	if err := w.hear(3, []byte(`{"fault":"the store is gone"}`)); err == nil || !strings.Contains(err.Error(), "the store is gone") {
		t.Errorf("a fault: %v, want an error", err)
	}
}

type ignored struct{ bytes.Buffer }

func (*ignored) Close() error { return nil }

// After the last fault, each worker must have a grant within calmBound.
func TestCalm(t *testing.T) {
	const workers = 2
	for name, c := range map[string]struct {
		says []calmReport
		want string // in a violation; empty: none
	}{
		"all have it":        {says: []calmReport{{Granted: true, Waited: time.Second}, {Worker: 1, Granted: true, Waited: 3 * time.Second}}},
		"one is refused":     {says: []calmReport{{Granted: true}, {Worker: 1, Waited: 5 * time.Second}}, want: "worker 1 was refused after 5s"},
		"one is not granted": {says: []calmReport{{Granted: true}}, want: "1 of 2 workers had no grant within 20s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := &ignored{}
				w := &world{options: options{clients: 1, workers: workers}, calm: make(chan calmReport, workers)}
				w.clients = []*clientProcess{{world: w, input: in}}
				for _, one := range c.says {
					w.calm <- one
				}
				found := w.awaitCalm(t.Context())
				if in.String() != calmLine {
					t.Errorf("the client process was told %q, want %q", in.String(), calmLine)
				}
				if c.want == "" && (len(found) > 0 || w.calmest != 3*time.Second) {
					t.Errorf("found %v, longest wait %v; want nothing, and 3s", found, w.calmest)
				}
				if c.want != "" && (len(found) != 1 || !strings.Contains(found[0].what, c.want)) {
					t.Errorf("found %v, want %q", found, c.want)
				}
			})
		})
	}
}

// refusing never grants a lock.
type refusing struct{}

func (refusing) lock([]string, mode, time.Duration, time.Duration) (*hold, error) { return nil, nil }
func (refusing) keep(*hold, instant) error                                        { return nil }
func (refusing) unlock(*hold) error                                               { return nil }
func (refusing) close()                                                           {}

func TestWorkerReportsRefusalAfterLastFault(t *testing.T) {
	var text bytes.Buffer
	w := &worker{number: 4, out: &output{writer: &text}}
	if err := w.calm(refusing{}); err != nil || !w.isCalm || !strings.HasPrefix(text.String(), `{"calm":{"worker":4,"granted":false,`) {
		t.Errorf("it printed %s, %v; want the refusal", &text, err)
	}
}

// A granting grants every lock, and counts the requests.
type granting struct {
	refusing
	requests int
}

func (g *granting) lock([]string, mode, time.Duration, time.Duration) (*hold, error) {
	g.requests++
	return &hold{}, nil
}

// A worker that has had its grant after the last fault leaves the processors to the others.
func TestWorkerRestsAfterLastFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calm, stop, ended := &granting{}, make(chan struct{}), make(chan struct{}), make(chan struct{})
		w := &worker{out: &output{writer: &bytes.Buffer{}}, open: func() (locker, error) { return g, nil }}
		close(calm)
		go func() {
			w.run(calm, stop)
			close(ended)
		}()
		synctest.Wait()
		if !w.isCalm || g.requests != 1 {
			t.Errorf("after its grant it has asked for %d locks, want 1", g.requests)
		}
		close(stop)
		<-ended
	})
}
