package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// --- faults beside a change of the nodes

// killCommitter kills a daemon while it commits a change, and counts the kills after which another daemon saw
// that the change was not done.
func (f *injector) killCommitter(int) (int, error) {
	w, c := f.world, &f.world.change
	var before, commits, number int
	c.note(func() { before = c.commits })
	if !f.until(func() bool { c.note(func() { commits, number = c.commits, c.committer }); return commits > before }) {
		return 0, nil
	}
	f.wait(time.Duration(f.random.Int64N(int64(maxTTL))))
	d := w.daemons[number]
	d.restarts.Lock()
	defer d.restarts.Unlock()
	d.kill()
	middle := 0
	if step, ok := w.step((number + 1) % len(w.daemons)); ok && (step == "begun" || step == "committed") {
		middle = 1
	}
	f.last(500 * time.Millisecond)
	return middle, d.start()
}

// stepWait is how long a daemon may take to refuse a config.
const stepWait = 5 * time.Second

// takeWrongSteps gives a daemon each list of nodes that comes too early or too late, and asks it to commit or undo what it
// must not. It counts the refusals. A step that is not refused, or changes anything, is a violation.
func (f *injector) takeWrongSteps(int) (refused int, err error) {
	w := f.world
	number := f.random.IntN(len(w.daemons))
	d := w.daemons[number]
	d.restarts.Lock()
	defer d.restarts.Unlock()
	step, ok := w.step(number)
	isJoint := len(d.joining)+len(d.leaving) > 0
	if !ok || isJoint && step != "begun" && step != "committed" {
		return 0, nil
	}
	verbs := []string{"NODES undo"} // a joint daemon cannot, or it is too late, or there is nothing to undo
	if !isJoint {
		verbs = append(verbs, "NODES commit")
	}
	for _, verb := range verbs {
		switch answer := w.ask(number, verb); {
		case strings.HasPrefix(answer, "OK "):
			w.fail(violation{name: verb, what: "it was not refused: " + answer})
		case answer != "":
			refused++
		}
	}
	for _, list := range d.wrongLists(step) {
		switch is, err := d.keeps(list, isJoint); {
		case err != nil:
			return refused, err
		case is:
			refused++
		default: // if the change was done meanwhile, it is the right list
			err := d.restart() // with the config that it had
			isDone := func() bool { step, ok := w.step(number); return ok && step == "done" }
			if err == nil && (!isJoint || !w.within(stepWait, isDone)) {
				w.fail(violation{name: fmt.Sprintf("daemon %d", number), what: fmt.Sprintf("it took the list of %d nodes after the step %q", len(list), step)})
			}
			return refused, err
		}
	}
	return refused, nil
}

// wrongLists returns the lists that a daemon must not take now. step is the one of its change; "": it has one list.
func (d *daemon) wrongLists(step string) (wrong [][]*node) {
	all, last := d.world.nodes, d.world.nodes[leavingNodes:]
	isFewer := len(d.joining) > 0 || len(d.joining)+len(d.leaving) == 0 && len(d.nodes) == len(last) // of the list that it has, or of the old one
	has, other := all, last
	if isFewer {
		has, other = last, all
	}
	if wrong = [][]*node{other}; step == "committed" {
		wrong = append(wrong, has)
	}
	return wrong
}

// keeps reloads a daemon with a list of nodes alone, and reports whether it refused that, and kept its config. Then it gets
// its own config again.
func (d *daemon) keeps(list []*node, isJoint bool) (bool, error) {
	nodes, joining, leaving := d.nodes, d.joining, d.leaving
	defer func() { d.nodes, d.joining, d.leaving = nodes, joining, leaving }()
	d.nodes, d.joining, d.leaving = list, nil, nil
	if err := d.reload(); err != nil {
		return false, err
	}
	refuses := func() bool { return d.shows(isJoint, true) }
	is := d.world.within(stepWait, refuses)
	d.nodes, d.joining, d.leaving = nodes, joining, leaving
	if err := d.reload(); err != nil {
		return false, err
	}
	return is && d.world.within(stepWait, func() bool { return d.shows(isJoint, false) }), nil
}

// shows reports whether the daemon has both lists, or one, and whether it says that it did not reload its config.
func (d *daemon) shows(isJoint, unreloaded bool) bool {
	answer, err := d.ask("STATUS")
	return err == nil && strings.HasPrefix(answer, "OK ") && (field(answer, "change") != "") == isJoint && (field(answer, "unreloaded") == "yes") == unreloaded
}

// within waits for a condition, also after the last fault.
func (w *world) within(most time.Duration, is func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}

// lateHosts is the first number of the clients of late hosts. It is larger than any number of a client process.
const lateHosts = 1 << 40

// lateTries is for how long a late host tries to take locks after it was woken.
const lateTries = 3 * time.Second

// wakeLateHost starts another daemon with the list in use, stops it, and wakes it after the nodes were changed. It then wants
// the same locks as the other clients. It counts the requests that were refused while its list was not in use.
func (f *injector) wakeLateHost(number int) (refused int, err error) {
	w, c := f.world, &f.world.change
	d, end, err := w.startBeside("late", number, w.daemons[number].list())
	if err != nil {
		return 0, err
	}
	defer end()
	client := lateHosts + f.random.IntN(lateHosts)
	tries := &worker{out: &output{writer: hearer{w, client}}, random: f.random, open: func() (locker, error) { return dialSession(d.socket()) },
		names: w.options.names, host: number, hosts: w.options.daemons}
	var before, done int
	c.note(func() { before = c.done })
	if granted, _ := f.tryLocks(tries, time.Second); granted == 0 {
		return 0, nil
	}
	if err := d.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	wakes := before + 1 + f.random.IntN(2)
	for end := time.Now().Add(3 * changeWait); done < wakes && !f.isDone() && time.Now().Before(end); f.wait(shortest) {
		c.note(func() { done = c.done })
	}
	if err := d.process.Process.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	wasReplaced := w.isReplaced(d.nodes)
	granted, refused := f.tryLocks(tries, lateTries)
	switch {
	case !wasReplaced || !w.isReplaced(d.nodes):
		return 0, nil // perhaps its list is in use, or will be
	case granted > 0:
		w.fail(violation{name: "late host", what: fmt.Sprintf("%d grants after its list of %d nodes was replaced", granted, len(d.nodes))})
	}
	return refused, nil
}

// isReplaced reports whether another list of nodes is in use, and no change from it is committed.
func (w *world) isReplaced(list []*node) (is bool) {
	c := &w.change
	c.note(func() { is = !c.committed && (len(list) == len(w.nodes)) == c.fewer })
	return is
}

// tryLocks lets a worker want locks for a while. It returns how often it got one, and how often not.
func (f *injector) tryLocks(tries *worker, most time.Duration) (granted, refused int) {
	connection, err := tries.open()
	if err != nil {
		return 0, 0
	}
	defer connection.close()
	for end := time.Now().Add(most); time.Now().Before(end); {
		last := tries.out.last.Load()
		if err := tries.once(connection); err != nil {
			return granted, refused
		}
		if tries.out.last.Load() > last {
			granted++
		} else {
			refused++
		}
	}
	return granted, refused
}

// list returns the list of nodes that is in use or, of a daemon with both lists, the old one.
func (d *daemon) list() []*node {
	d.restarts.Lock()
	defer d.restarts.Unlock()
	return slices.DeleteFunc(slices.Clone(d.nodes), func(n *node) bool { return slices.Contains(d.joining, n) })
}

// hearer passes the lines of a worker in this process on.
type hearer struct {
	world  *world
	client int
}

func (h hearer) Write(text []byte) (int, error) {
	var line clientLine
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, err
	}
	if line.Hold == nil { // a violation, or a fault of the run
		h.world.fail(violation{name: fmt.Sprint("client ", h.client), what: line.Late + line.Fault})
		return len(text), nil
	}
	return len(text), h.world.hear(h.client, text)
}
