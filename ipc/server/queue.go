package server

import "bytes"

// queue is lines without a tag that wait for their turn, first come first served.
type queue struct {
	lines []byte // each with an LF
	from  int
}

func (q *queue) empty() bool { return q.from == len(q.lines) }

// size is the bytes that wait.
func (q *queue) size() int { return len(q.lines) - q.from }

// rest is the lines that wait, valid until the next push.
func (q *queue) rest() []byte { return q.lines[q.from:] }

func (q *queue) push(line []byte) {
	if q.from > len(q.lines)/2 {
		q.lines = q.lines[:copy(q.lines, q.lines[q.from:])]
		q.from = 0
	}
	q.lines = append(q.lines, line...)
	q.lines = append(q.lines, '\n')
}

// pop takes the first line, which is valid until the next push. The queue is
// not empty.
func (q *queue) pop() []byte {
	line, _, _ := bytes.Cut(q.lines[q.from:], []byte{'\n'})
	q.from += len(line) + 1
	if q.empty() {
		*q = queue{} // idle connections hold no memory
	}
	return line
}
