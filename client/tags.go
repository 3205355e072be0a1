package client

import (
	"iter"
	"strconv"
)

// tagTable has the calls in flight, by their tags.
//
// A call keeps its first tag until it ends. If the daemon restarts and keeps the connection (BACK), the
// answer to the first request may be lost or may still come. So the request is sent again under another
// tag, and the first answer counts. The other tag is a stray then: an answer under it may still come, or
// never.
type tagTable struct {
	tags []tagged // by the number that the tag is
	free []int    // the last one that became free is used first, so that few and short ones are in use
}

// tagged is what a tag stands for.
type tagged struct {
	text  string
	call  *call // nil: it is free, or a stray
	stray stray
}

// stray is what an answer under a stray tag can be.
type stray uint8

const (
	noStray       stray = iota
	strayOther          // no grant
	strayLock           // a grant that ends with the connection
	strayOutlasts       // a grant that outlasts the connection
)

// add gives a call another tag.
func (t *tagTable) add(cl *call) int {
	n := len(t.tags)
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		t.tags = append(t.tags, tagged{text: strconv.FormatInt(int64(n), 36)})
	}
	t.tags[n].call = cl
	cl.tags = append(cl.tags, n)
	return n
}

// remove makes a tag free.
func (t *tagTable) remove(n int) {
	t.tags[n].call, t.tags[n].stray = nil, noStray
	t.free = append(t.free, n)
}

// find returns the number of a tag in an answer. ok is false if no answer can have it.
func (t *tagTable) find(tag string) (n int, ok bool) {
	number, err := strconv.ParseUint(tag, 36, 31)
	if n = int(number); err != nil || n >= len(t.tags) || t.tags[n].text != tag {
		return 0, false
	}
	return n, t.tags[n].stray != noStray || t.tags[n].call != nil && t.tags[n].call.sent
}

// calls returns the calls in flight.
func (t *tagTable) calls() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		for n := range t.tags {
			if cl := t.tags[n].call; cl != nil && cl.tags[0] == n && !yield(cl) {
				return
			}
		}
	}
}

// forgetConnection frees all tags but the first one of each call: no more answers come on the connection.
func (t *tagTable) forgetConnection() {
	for n := range t.tags {
		switch cl := t.tags[n].call; {
		case cl == nil && t.tags[n].stray == noStray:
		case cl == nil || cl.tags[0] != n:
			t.remove(n)
		default:
			cl.tags = cl.tags[:1]
		}
	}
}
