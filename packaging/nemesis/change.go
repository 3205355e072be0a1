package main

import (
	"strings"
	"sync"
	"time"
)

// nodeChange is how far the changes of the set of nodes are: from all nodes to the last ones, back, and so
// on. A run may end at any time, so a fault continues what an earlier one did not finish.
type nodeChange struct {
	joint bool // every daemon may have both lists

	mu        sync.Mutex // guards the fields below, which other faults read; only the one that changes the nodes writes them
	fewer     bool       // the list that is in use, or the old one, is the last nodes
	commits   int        // how often a daemon was asked to commit a change
	committer int        // the last one
	committed bool       // one was asked to commit the change in progress
	done      int        // changes that are done: every daemon has the new list
}

const (
	// leavingNodes leave in a change, and join again in the next one.
	leavingNodes = 2
	// changesInARow is how many changes follow one another in a fault.
	changesInARow = 3
	// changeWait is how long a fault waits for a step of a change. Other faults may delay it.
	changeWait = 60 * time.Second
	// joinedAgain is the name under which the nodes are counted that left and joined again.
	joinedAgain = "nodes that left join again"
)

// changeNodes changes the set of nodes while locks are held, back, and again. It counts the daemons that
// it restarted with another config.
func (f *injector) changeNodes(int) (restarted int, err error) {
	for range changesInARow {
		n, isDone, err := f.changeOnce()
		if restarted += n; !isDone || err != nil {
			return restarted, err
		}
	}
	return restarted, nil
}

// changeOnce gives all daemons both lists, commits, and gives them the new list.
func (f *injector) changeOnce() (restarted int, isDone bool, err error) {
	w := f.world
	others, c := w.nodes[:leavingNodes], &w.change
	roll := func(nodes, joining, leaving []*node) bool {
		for _, d := range w.daemons {
			f.last(500 * time.Millisecond)
			if f.isDone() || err != nil {
				return false
			}
			if err = d.setNodes(nodes, joining, leaving); err == nil {
				restarted++
			}
		}
		return err == nil
	}
	if !c.joint {
		both := func() bool { return roll(w.nodes, nil, others) }
		if c.fewer { // nodes that left join again, with the state that they had
			both = func() bool { return roll(w.nodes, others, nil) }
		}
		if !both() {
			return restarted, false, err // the next change does it again
		}
		c.joint = true
	}
	commits := func() bool {
		d := f.random.IntN(len(w.daemons))
		if step, ok := w.step(d); !ok || step == "begins" {
			return false
		}
		c.note(func() { c.commits, c.committer, c.committed = c.commits+1, d, true })
		return strings.HasPrefix(w.ask(d, "NODES commit"), "OK ")
	}
	if !f.until(commits) {
		return restarted, false, nil
	}
	if c.fewer {
		f.also(joinedAgain, leavingNodes)
	}
	for i := range w.daemons {
		// Without a change, it has the new list.
		if !f.until(func() bool { step, ok := w.step(i); return ok && (step == "done" || step == "") }) {
			return restarted, false, nil
		}
	}
	list := w.nodes
	if !c.fewer {
		list = w.nodes[leavingNodes:]
	}
	if !roll(list, nil, nil) {
		return restarted, false, err // some daemons have both lists: the next fault finds the change done
	}
	c.joint = false
	c.note(func() { c.done, c.fewer, c.committed = c.done+1, !c.fewer, false })
	return restarted, true, nil
}

// note records what other faults read.
func (c *nodeChange) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// step returns how far the change in a daemon's config is; "": it has none. ok is false if the daemon was stopped or
// restarted.
func (w *world) step(daemon int) (step string, ok bool) {
	answer := w.ask(daemon, "STATUS")
	return field(answer, "change"), strings.HasPrefix(answer, "OK ")
}

// ask returns the answer of a daemon; "": it was stopped or restarted.
func (w *world) ask(daemon int, request string) string {
	answer, err := w.daemons[daemon].ask(request)
	if err != nil {
		return ""
	}
	return answer
}

// until waits for a condition, and reports whether it came true in time.
func (f *injector) until(is func() bool) bool {
	for end := time.Now().Add(changeWait); !f.isDone() && time.Now().Before(end); f.wait(shortest) {
		if is() {
			return true
		}
	}
	return false
}

func (f *injector) isDone() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
