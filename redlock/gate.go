package redlock

import (
	"context"
	"sync"
	"time"
)

// gate bounds the attempts that are put to the nodes at once. What more are wanted
// wait here, where it costs the nodes nothing: put to them all at once, thousands
// would take them longer than the node timeout, fail, be given back, be tried again,
// and keep the nodes from extending what is held.
//
// How many are let in follows from how they fare, as TCP has it (additive increase,
// multiplicative decrease): half as many once one found no quorum of nodes that answer
// in time, and more again as others do.
//
// Those who wait come in the order in which they asked, of each user, and the users
// take turns: who asks for thousands of locks waits for himself.
type gate struct {
	timeout time.Duration // of a node

	mu     sync.Mutex       // guards what follows
	room   int              // how many may be inside; 0: none has asked yet
	inside int              // attempts under way
	voted  int              // those that met a quorum since room has changed
	shrunk time.Duration    // when room was last made less
	lines  map[int][]*entry // who waits, by user; none is empty
	next   []int            // the users who do, in the order of their turns
}

const (
	// So many attempts at once take local nodes some ten milliseconds, and are more
	// than enough to keep far ones busy.
	mostInside  = 256
	leastInside = 32
	insideStep  = 8 // more, when as many as there is room for have met a quorum
	// restShare of the node timeout is how long a place is taken, at least, by one that
	// met no quorum: who cannot be served is told so quickly, but not by the ten
	// thousand at once, again and again.
	restShare = 4
)

// entry is one who waits at the gate.
type entry struct {
	open chan struct{} // closed when he is inside
	gone bool          // he did not wait for that
}

// enter waits for a place inside, until ctx is done, enough is closed or the time is
// over (zero: no bound). It tells whether there is one: leave gives it back.
func (g *gate) enter(ctx context.Context, user int, enough <-chan struct{}, until <-chan time.Time) bool {
	e := g.ask(user)
	if e == nil {
		return true
	}
	select {
	case <-e.open:
		return true
	case <-ctx.Done():
	case <-enough:
	case <-until:
	}
	g.withdraw(e)
	return false
}

// ask is nil for who is inside at once.
func (g *gate) ask(user int) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.room == 0 {
		g.room = mostInside
	}
	if g.inside < g.room {
		g.inside++
		return nil
	}
	if g.lines == nil {
		g.lines = map[int][]*entry{}
	}
	if len(g.lines[user]) == 0 {
		g.next = append(g.next, user)
	}
	e := &entry{open: make(chan struct{})}
	g.lines[user] = append(g.lines[user], e)
	return e
}

// withdraw: he waits no more. Where he was let in meanwhile, another one is.
func (g *gate) withdraw(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.gone = true
	if isClosed(e.open) {
		g.inside--
		g.letIn()
	}
}

// leave gives the place back of an attempt that met a quorum.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.widen()
	g.letIn()
}

// leaveInVain gives the place back of an attempt that began at start and met none.
func (g *gate) leaveInVain(start, now time.Duration) {
	if wait := start + g.timeout/restShare - now; wait > 0 {
		time.AfterFunc(wait, func() { g.leftInVain(now + wait) })
		return
	}
	g.leftInVain(now)
}

func (g *gate) leftInVain(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.narrow(now)
	g.letIn()
}

// narrow needs mu. It does nothing for all but one of those that began together.
func (g *gate) narrow(now time.Duration) {
	if now-g.shrunk >= g.timeout {
		g.room, g.voted, g.shrunk = max(g.room/2, leastInside), 0, now
	}
}

// widen needs mu.
func (g *gate) widen() {
	if g.voted++; g.voted >= g.room {
		g.room, g.voted = min(g.room+insideStep, mostInside), 0
	}
}

// letIn fills the room that there is. The caller holds mu.
func (g *gate) letIn() {
	for len(g.next) > 0 && g.inside < g.room {
		if e := g.pop(); !e.gone {
			close(e.open)
			g.inside++
		}
	}
}

// pop is the first in the line of the user whose turn it is. The caller holds mu.
func (g *gate) pop() *entry {
	user := g.next[0]
	e, rest := g.lines[user][0], g.lines[user][1:]
	g.next = g.next[1:]
	if g.lines[user] = rest; len(rest) > 0 {
		g.next = append(g.next, user)
	} else {
		delete(g.lines, user)
	}
	return e
}
