package server

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// Lines leave the queue in order, each once, even if others are added meanwhile.
func TestLineQueueIsFirstComeFirstServed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var q lineQueue
	next, last := 0, 0 // numbers of the queued lines
	for range 20000 {
		if last == next || random.IntN(2) == 0 {
			q.push([]byte(strconv.Itoa(last)))
			last++
		} else if got := string(q.pop()); got != strconv.Itoa(next) {
			t.Fatalf("line %d is %q", next, got)
		} else {
			next++
		}
		if q.empty() != (next == last) {
			t.Fatalf("lines %d to %d wait, and it is empty: %v", next, last, q.empty())
		}
	}
}

// The queue keeps memory only for lines that wait, even if it is never empty.
func TestLineQueueStaysSmall(t *testing.T) {
	var q lineQueue
	line := make([]byte, 100)
	q.push(line)
	for range 1000 {
		q.push(line)
		q.pop()
	}
	if len(q.lines) > 4*len(line)+4 {
		t.Errorf("%d bytes are kept of lines of which %d wait", len(q.lines), q.size())
	}
}
