package server

import "bytes"

// queue is lines without a tag that wait for their turn, first come first served.
type lineQueue struct {
	lines []byte // each with an LF
	from  int
}

func (q *lineQueue) empty() bool { return q.from == len(q.lines) }

// size is the bytes that wait.
func (q *lineQueue) size() int { return len(q.lines) - q.from }

// rest is the lines that wait, valid until the next push.
func (q *lineQueue) rest() []byte { return q.lines[q.from:] }

func (q *lineQueue) push(line []byte) {
	if q.from > len(q.lines)/2 {
		q.lines = q.lines[:copy(q.lines, q.lines[q.from:])]
		q.from = 0
	}
	q.lines = append(q.lines, line...)
	q.lines = append(q.lines, '\n')
}

// pop takes the first line, which is valid until the next push. The queue is
// not empty.
func (q *lineQueue) pop() []byte {
	line, _, _ := bytes.Cut(q.lines[q.from:], []byte{'\n'})
	q.from += len(line) + 1
	if q.empty() {
		*q = lineQueue{} // idle connections hold no memory
	}
	return line
}
