package main

import (
	"strings"
	"time"
)

// nodeChange is how far the change of the set of nodes is: from all five to the last three, or back. A
// run may end at any time, so a fault continues what an earlier one did not finish.
type nodeChange struct {
	fewer bool // the list that is in use, or the old one, is the last three
	joint bool // every daemon may have both lists
}

// changeWait is how long a fault waits for a step of a change. Other faults may delay it.
const changeWait = 60 * time.Second

// changeNodes changes the set of nodes while locks are held: it gives all daemons both lists, commits,
// and gives them the new list. It counts the daemons that it restarted with another config.
func (f *injector) changeNodes(int) (restarted int, err error) {
	w := f.world
	others, c := w.nodes[:2], &w.change
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
			return restarted, err // the next change does it again
		}
		c.joint = true
	}
	if !f.until(func() bool { return strings.HasPrefix(w.ask(f.random.IntN(len(w.daemons)), "NODES commit"), "OK ") }) {
		return restarted, nil
	}
	for i := range w.daemons {
		isDone := func() bool {
			answer := w.ask(i, "STATUS")
			return strings.HasPrefix(answer, "OK ") && (strings.Contains(answer, "change=done") || !strings.Contains(answer, "change=")) // without a change, it has the new list
		}
		if !f.until(isDone) {
			return restarted, nil
		}
	}
	list := w.nodes
	if !c.fewer {
		list = w.nodes[2:]
	}
	if !roll(list, nil, nil) {
		return restarted, err // some daemons have both lists: the next fault finds the change done
	}
	c.joint, c.fewer = false, !c.fewer
	return restarted, nil
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
