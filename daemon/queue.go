package daemon

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redlockd/redlockd/redlock"
)

// queue is the wait list of this host: for each name who holds it and who
// waits, first come, first served. Those who have nobody in their way contend on
// the nodes for the whole host: one for a lock that he wants alone, readers who
// stand together, as many as there are slots. Nobody overtakes: a reader stays
// behind a writer who waits, and who wants several names stands in all of their
// lines from the first moment on, so that two of them cannot wait for each other.
type queue struct {
	gates    [64]sync.Mutex // see lock
	mu       sync.Mutex     // guards what follows, and what of a place is said to be its
	lines    map[string]*lineup
	spare    *lineup          // empty, for the next line; nil: there is none
	waits    lineup           // those who hold nothing yet, of all lines
	joined   uint64           // places, ever
	parties  map[owner]*party // who waits for whom: see deadlock.go
	searches int
}

// place is one request's stand in the lines of its names, from its arrival
// until it failed, or its lease ended.
type place struct {
	names []string
	first [1]string // what names is made of where there is one
	who   *asker
	owner owner
	ask   *ask // whose it is

	number uint64 // in the order of arrival

	near chan struct{} // closed when it wants its locks alone, and those in its way hold and share them; nil: it has its turn, or would share
	turn chan struct{} // closed when nothing is in its way any more; nil: its turn came with its arrival

	// Guarded by the queue's mu, but kind and patient.
	begun   *redlock.Begun // the grant that was begun for it, and that it has not taken yet
	row     row            // that a lease of its would go on with
	party   *party         // nil while it neither waits nor is waited for
	holding *holding       // once granted
	met     error          // how its last attempt on the nodes failed, or the one before it in the line
	kind    kind           // does not change
	patient bool           // it waits where its turn does not come at once; does not change
	called  bool
	left    bool // it takes no turn any more
}

func newQueue() *queue {
	return &queue{lines: map[string]*lineup{}, parties: map[owner]*party{}}
}

// lock locks mu for a request. Of those of a user that want several names, which take
// long, one at a time contends for it: when his thousands end at once, another user waits
// for one of them, not for all.
func (q *queue) lock(p *place) {
	if gate := q.gate(p); gate != nil {
		gate.Lock()
	}
	q.mu.Lock()
}

func (q *queue) unlock(p *place) {
	q.mu.Unlock()
	if gate := q.gate(p); gate != nil {
		gate.Unlock()
	}
}

// gate is one that the user shares with few others; nil: none is needed.
func (q *queue) gate(p *place) *sync.Mutex {
	if len(p.names) == 1 {
		return nil
	}
	return &q.gates[uint(p.who.uid)%uint(len(q.gates))]
}

// set makes it the place of one who asks for these names, which it copies.
func (p *place) set(names []string, k kind, who *asker) {
	if len(names) == 1 {
		p.first[0] = names[0]
		p.names = p.first[:]
	} else {
		p.names = slices.Clone(names)
	}
	p.kind, p.who = k, who
}

// label names what is asked for, for people.
func (p *place) label() string {
	if len(p.names) == 1 {
		return p.names[0]
	}
	return strings.Join(p.names, ",")
}

// join puts p at the end of its lines. Its turn comes at once if nothing
// before it conflicts. The error matches errDeadlock if p would wait for its own
// owner, by way of others; it is not in the queue then.
func (q *queue) join(p *place) error {
	q.lock(p)
	defer q.unlock(p)
	q.number(p)
	p.called = q.before(p) == nil
	if p.waits() {
		if err := q.mayWait(p); err != nil {
			return err
		}
	}
	if !p.called {
		p.turn = make(chan struct{})
	}
	if !p.called && p.kind.alone() {
		p.near = make(chan struct{})
	}
	q.append(p)
	q.waits.append(p)
	q.noteNear(p.names)
	return nil
}

// number needs mu.
func (q *queue) number(p *place) {
	q.joined++
	p.number = q.joined
}

// append puts p, which has a number, at the end of its lines. It needs mu.
func (q *queue) append(p *place) {
	for _, name := range p.names {
		line := q.lines[name]
		if line == nil {
			line = q.newLine()
			q.lines[name] = line
		}
		line.append(p)
	}
}

func (q *queue) newLine() *lineup {
	line := q.spare
	if q.spare = nil; line == nil {
		line = &lineup{}
	}
	return line
}

// leave takes p out of its lines, and calls those whose turn it is now. met is
// what p's last attempt met, nil if it held: who comes next need not find out
// again for itself. (Who never had its turn has met nothing.) They go on with p's row.
func (q *queue) leave(p *place, met error) {
	q.lock(p)
	defer q.unlock(p)
	q.leaveParty(p)
	q.waits.remove(p)
	q.remove(p)
	once := onceEach(p.names)
	for _, name := range p.names {
	behind:
		for next := range q.lines[name].all() {
			if next.called {
				continue
			}
			if p.called {
				next.met = met
			}
			switch {
			case once.looksAt(next) && q.callIfFree(next):
				next.row = p.row
			case !next.kind.shared:
				break behind // nobody overtakes
			}
		}
	}
	q.noteNear(p.names)
}

// remove takes p out of its lines. It needs mu.
func (q *queue) remove(p *place) {
	for _, name := range p.names {
		line := q.lines[name]
		if line.isEmpty() {
			continue
		}
		if line.remove(p); line.isEmpty() {
			delete(q.lines, name)
			q.spare = line
		}
	}
}

// once is for who stands in several lines, and need not be looked at in each. Nil: there
// is but one line.
type once map[*place]bool

func onceEach(names []string) once {
	if len(names) == 1 {
		return nil
	}
	return once{}
}

// looksAt is false if it looked at p before.
func (o once) looksAt(p *place) bool {
	if o == nil {
		return true
	}
	before := o[p]
	o[p] = true
	return !before
}

// callIfFree needs mu.
func (q *queue) callIfFree(p *place) bool {
	if q.before(p) != nil {
		return false
	}
	p.called = true
	close(p.turn)
	return true
}

// before is the first place that p has to wait for. The caller holds mu.
func (q *queue) before(p *place) *place {
	first, _ := q.inWayOf(p)
	return first
}

// inWayOf is before, and the name of the line in which it stands. The caller holds mu.
func (q *queue) inWayOf(p *place) (first *place, at string) {
	for _, name := range p.names {
		if first := p.firstInWay(q.lines[name]); first != nil {
			return first, name
		}
	}
	return nil, ""
}

// note remembers what p's attempt met. Where somebody of another host had the
// lock, the row of this host is over.
func (q *queue) note(p *place, met error) {
	q.lock(p)
	defer q.unlock(p)
	if p.met = met; errors.Is(met, redlock.ErrHeld) {
		p.row = row{}
	}
}

func (q *queue) metBy(p *place) error {
	q.lock(p)
	defer q.unlock(p)
	return p.met
}

// hold marks p as the place of a lease.
func (q *queue) hold(p *place, h *holding) {
	q.lock(p)
	defer q.unlock(p)
	p.holding, p.met, p.ask = h, nil, nil
	q.waits.remove(p)
	q.noteNear(p.names)
}

// waiting lists the places that hold nothing, in the order of arrival.
func (q *queue) waiting() []*place {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(q.waits.all())
}
