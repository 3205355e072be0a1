package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// changing makes a fleet of a host that has both lists: nodes a to z, of which a plus marks the
// joining and a minus the leaving ones: "a b- c+".
func changing(nodes string) *Fleet {
	o := Options{MaxTTL: 10 * time.Second, Prefix: DefaultPrefix, Refusing: new(quorum.Refusing)}
	var before, after quorum.Set
	for i, name := range strings.Fields(nodes) {
		n := NodeOptions{Name: name[:1], Joining: strings.HasSuffix(name, "+"), Leaving: strings.HasSuffix(name, "-")}
		o.Nodes = append(o.Nodes, n)
		if !n.Joining {
			before |= quorum.Of(i)
		}
		if !n.Leaving {
			after |= quorum.Of(i)
		}
	}
	o.Quorum = quorum.Changing(before, after, o.Refusing)
	if before == after {
		o.Quorum = quorum.Majority(len(o.Nodes))
	}
	return NewFleet(o)
}

// stageOf returns a stage of a change between lists of one letter for each node, or of no change.
func stageOf(text string) Stage {
	digest := func(names string) string { return listDigest(strings.Split(names, ""), DefaultPrefix) }
	before, rest, isChange := strings.Cut(text, ">")
	if !isChange {
		return Stage{Old: digest(before)}
	}
	after, word, _ := strings.Cut(rest, " ")
	for step := Begun; step <= Done; step++ {
		if step.String() == word {
			return Stage{Old: digest(before), New: digest(after), Step: step}
		}
	}
	panic("no step: " + text)
}

// A stage is written and read. Guards parseStage.
func TestStageText(t *testing.T) {
	for _, text := range []string{"abc", "abc>abd begun", "abc>abd committed", "a>b done"} {
		s := stageOf(text)
		if got, err := parseStage(s.String()); got != s || err != nil {
			t.Errorf("%s: read %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"a>b", "a>b>later", "a>b>done>", ">>"} {
		if s, err := parseStage(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

// A node serves a host only if their quorums overlap with those of all other hosts that it serves, or
// that it served within max_ttl. The refusal says what to do. Guards change.serves, change.refusal.
func TestServes(t *testing.T) {
	const yes = "yes"
	for _, c := range []struct{ host, stage, want string }{
		{"a b c", "abc", yes},
		{"a b c", "abc>abd begun", yes},
		{"a b c", "abc>abd committed", "has the old list"},
		{"a b c", "abc>abd done", "has the old list"},
		{"a b c", "abd>abc begun", "not complete on this node"},
		{"a b c", "abd>abc committed", "not complete on this node"},
		{"a b c", "abd>abc done", yes},
		{"a b c", "abd", "another node list"},
		{"a b c", "abd>abe begun", "another change"},
		{"a b c", "abd>abe done", "another change"},
		{"a b c- d+", "abc", yes},
		{"a b c- d+", "abc>abd begun", yes},
		{"a b c- d+", "abc>abd committed", yes},
		{"a b c- d+", "abc>abd done", yes},
		{"a b c- d+", "abd", yes}, // as a new host
		{"a b c- d+", "abd>abe begun", yes},
		{"c- a b d+", "abd", "is complete there"}, // it is not in the new list
		{"a b c- d+", "abx>abc done", yes},        // the change before
		{"a b c- d+", "abx>abc committed", "another change"},
		{"a b c- d+", "abc>abe begun", yes}, // as an old host: see Progress.Conflict
		{"a b c- d+", "abc>abe committed", "has the old list"},
		{"a b c- d+", "xyz", "another node list"},
	} {
		f := changing(c.host)
		s := stageOf(c.stage)
		switch got := f.change.serves(0, s); {
		case got != (c.want == yes):
			t.Errorf("a host with %s, a node with %s: serves is %v", c.host, c.stage, got)
		case !got && !strings.Contains(f.change.refusal(0, s).Error(), c.want):
			t.Errorf("a host with %s, a node with %s: %v; want %q in it", c.host, c.stage, f.change.refusal(0, s), c.want)
		}
	}
	if f := changing("a b c- d+"); f.change.serves(3, stageOf("abc")) {
		t.Error("a joining node with the old list serves a host")
	}
	for _, step := range []string{"committed", "done"} { // the last change, in which d left
		f, left := changing("a b c- d+"), stageOf("abcd>abc "+step)
		if err := f.change.refusal(3, left); f.change.serves(3, left) || !strings.Contains(err.Error(), "it left these nodes in an earlier change") {
			t.Errorf("a node that left, and joins with its old state (%s): %v", step, err)
		}
	}
}

// look looks at nodes: "a1 committed 3 7" is node a, word 1, seen to be committed in each second from 3
// to 7.
func (f *Fleet) look(looks ...string) {
	for _, text := range looks {
		var node, step string
		var first, last int
		if _, err := fmt.Sscan(text, &node, &step, &first, &last); err != nil {
			panic(err)
		}
		s := Stage{Old: f.change.old, New: f.change.new}
		for s.Step = Begun; s.Step.String() != step; s.Step++ {
		}
		for at := first; at <= last; at++ {
			f.change.note(int(node[0]-'a'), node, s, time.Duration(at)*time.Second, time.Duration(at)*time.Second, 10*time.Second)
		}
	}
}

// Every lock of an old host has expired if a majority of the old list refused such hosts at one
// instant, and has kept its data until max_ttl (10 s) later. Guards
// change.evidenceLocked, change.note.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		what  string
		looks []string
		want  bool
	}{
		{"a majority for max_ttl", []string{"a1 committed 1 12", "b1 committed 2 12"}, true},
		{"all nodes", []string{"a1 committed 1 12", "b1 committed 2 12", "c1 committed 2 12"}, true},
		{"one of them is done meanwhile", []string{"a1 committed 1 5", "a1 done 6 12", "b1 committed 2 12"}, true},
		{"the third is late", []string{"a1 committed 1 12", "b1 committed 2 12", "c1 committed 9 12"}, true},
		{"a minority", []string{"a1 committed 1 20", "b1 begun 1 20"}, false},
		{"a joining node does not count", []string{"a1 committed 1 20", "d1 committed 1 20"}, false},
		{"too short", []string{"a1 committed 1 11", "b1 committed 2 11"}, false},
		{"the second was not seen since", []string{"a1 committed 1 5", "b1 committed 2 20"}, false},
		{"one lost its data and was admitted again", []string{"a1 committed 1 5", "a2 committed 8 12", "b1 committed 2 12"}, false},
		{"at different times", []string{"a1 committed 1 5", "a2 begun 6 7", "b1 committed 8 20"}, false},
		{"not seen for longer than max_ttl", []string{"a1 committed 1 2", "a1 committed 13 20", "b1 committed 2 20"}, false},
		{"lost its data, and long after that", []string{"a1 committed 1 5", "a2 committed 8 18", "b1 committed 2 18"}, true},
	} {
		f := changing("a b c- d+")
		f.look(c.looks...)
		if got := f.change.evidenceLocked(14*time.Second, 10*time.Second) != 0; got != c.want {
			t.Errorf("%s: evidence is %v", c.what, got)
		}
	}
	f := changing("a b c- d+")
	f.look("a1 committed 1 12", "b1 committed 1 12")
	if f.change.evidenceLocked(23*time.Second, 10*time.Second) != 0 {
		t.Error("from before the host was stopped: evidence is true")
	}
}

// A node gets its next stage when it is its turn, and not before. Guards change.next,
// change.isTurnOfLocked.
func TestNextStage(t *testing.T) {
	votes := func(int) bool { return true }
	for _, c := range []struct {
		what   string
		host   string
		looks  []string
		commit bool
		now    int
		node   int
		has    string
		want   string
	}{
		{"the first begins", "a b c- d+", nil, false, 10, 0, "abc", "abc>abd begun"},
		{"the second waits for the first", "a b c- d+", nil, false, 10, 1, "abc", "abc"},
		{"and for a while", "a b c- d+", []string{"a1 begun 9 9"}, false, 10, 1, "abc", "abc"},
		{"then it begins", "a b c- d+", []string{"a1 begun 5 9"}, false, 10, 1, "abc", "abc>abd begun"},
		{"after the change before", "a b c- d+", nil, false, 10, 0, "abx>abc done", "abc>abd begun"},
		{"not beside another change", "a b c- d+", nil, false, 10, 0, "abc>abe begun", "abc>abe begun"},
		{"no commit by itself", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, false, 10, 0, "abc>abd begun", "abc>abd begun"},
		{"the operator commits", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, true, 10, 0, "abc>abd begun", "abc>abd committed"},
		{"one after the other", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, true, 10, 1, "abc>abd begun", "abc>abd begun"},
		{"another host continues", "a b c- d+", []string{"a1 committed 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, false, 10, 1, "abc>abd begun", "abc>abd committed"},
		{"a joining node is not committed", "a b c- d+", []string{"a1 committed 1 9", "b1 committed 1 9", "c1 committed 1 9", "d1 begun 1 9"}, true, 10, 3, "abc>abd begun", "abc>abd begun"},
		{"a change that is done does not begin again", "a b c- d+", nil, true, 10, 0, "abd", "abd"},
		{"nor does the next one", "a b c- d+", nil, true, 10, 0, "abd>abe begun", "abd>abe begun"},
		{"an old host changes nothing", "a b c", nil, false, 10, 0, "abc>abd begun", "abc>abd begun"},
	} {
		f := changing(c.host)
		f.look(c.looks...)
		f.change.commits = c.commit
		if got, _ := f.change.next(c.node, stageOf(c.has), time.Duration(c.now)*time.Second, 10*time.Second, votes); got != stageOf(c.want) {
			t.Errorf("%s: node %d with %s gets %v, want %s", c.what, c.node, c.has, got, c.want)
		}
	}
}

// An old host undoes a change that has begun, if the operator wants it, for a while. It undoes none
// that is committed. Guards Fleet.Undo.
func TestUndo(t *testing.T) {
	votes := func(int) bool { return true }
	f := changing("a b c")
	if err := f.Undo(0); err != ErrNothingBegun {
		t.Errorf("nothing has begun, and it is undone: %v", err)
	}
	f.change.note(1, "b1", stageOf("abc>abd begun"), 0, 0, 10*time.Second)
	if err := f.Undo(0); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.change.next(0, stageOf("abc>abe begun"), 0, 10*time.Second, votes); got != stageOf("abc>abe begun") {
		t.Errorf("another change is undone: %v", got)
	}
	for at, want := range map[time.Duration]string{5 * time.Second: "abc", time.Minute: "abc>abd begun"} {
		if got, _ := f.change.next(0, stageOf("abc>abd begun"), at, 10*time.Second, votes); got != stageOf(want) {
			t.Errorf("at %v: %v, want %s", at, got, want)
		}
	}
	if got, _ := f.change.next(0, stageOf("abx>abc done"), 5*time.Second, 10*time.Second, votes); got != stageOf("abx>abc done") {
		t.Errorf("a change that is done is undone: %v", got)
	}
	if err := changing("a b c- d+").Undo(0); err != ErrIsJoint {
		t.Errorf("undone by a host with both lists: %v", err)
	}
}

// hash is what is read from a node: its epoch.
func hash(word, stage string) string {
	e := Epoch{RunID: "r", Word: word, MaxTTL: time.Second, Stage: stageOf(stage).String(), Name: "n"}
	return e.String()
}

// A node that lost its data gets the latest stage of the nodes from which its counters are copied.
// Otherwise old hosts could get a majority again. One node does not show that the change is done: it may
// have missed an earlier change, in which it left. Guards change.admits.
func TestStageOfAdmitted(t *testing.T) {
	for _, c := range []struct {
		host    string
		sources [4]string
		want    string
	}{
		{"a b c", [4]string{"", "abc", "abc"}, "abc"},
		{"a b c", [4]string{"", "abc>abd begun", "abc"}, "abc>abd begun"},
		{"a b c", [4]string{"", "abd>abc done", "abd>abc done"}, "abd>abc done"},
		{"a b c- d+", [4]string{"", "abc", "abc"}, "abc>abd begun"},
		{"a b c- d+", [4]string{"", "abc>abd begun", "abc>abd committed"}, "abc>abd committed"},
		{"a b c- d+", [4]string{"", "abc>abd done", "abc>abd committed", "abc>abd done"}, "abc>abd done"},
		{"a b c- d+", [4]string{"", "abc>abd done", "abc>abd committed", "abc>abd begun"}, "abc>abd committed"},
		{"a b c- d+", [4]string{"", "abc>abd begun", "abc>abd begun", "abd"}, "abc>abd begun"}, // d missed the change in which it left
		{"a b c- d+", [4]string{"", "", "abc>abd begun", "abd"}, "abc>abd committed"},          // perhaps
		{"a b c- d+", [4]string{"", "abx>abc done", "abx>abc done"}, "abc>abd begun"},
		{"a b c- d+", [4]string{"", "abd", "abc>abd committed", "abd"}, "abc>abd done"},
		{"a b c- d+", [4]string{"", "abd>abe begun", "abc>abd committed", "abd"}, "abc>abd done"},
	} {
		f := changing(c.host)
		sources := &Sources{Epochs: make([]string, 4)}
		for i, stage := range c.sources {
			if stage != "" {
				sources.Nodes |= quorum.Of(i)
				sources.Epochs[i] = hash("w", stage)
			}
		}
		if got := f.change.admits(sources); got != stageOf(c.want) {
			t.Errorf("%s, sources %q: %v, want %s", c.host, c.sources, got, c.want)
		}
	}
}

// A node serves new hosts only with the counters of a majority of the old list that refuses old
// hosts, read from the nodes that are the evidence. Guards change.complete.
func TestComplete(t *testing.T) {
	evident := []string{"a1 committed 1 12", "b1 committed 1 12", "c1 committed 1 12", "d1 begun 1 12"}
	for _, c := range []struct {
		what    string
		looks   []string
		sources map[int]string // epochs
		want    bool
	}{
		{"counters of two", evident, map[int]string{0: hash("a1", "abc>abd committed"), 1: hash("b1", "abc>abd done")}, true},
		{"counters of one", evident, map[int]string{0: hash("a1", "abc>abd committed")}, false},
		{"one has lost its data", evident, map[int]string{0: hash("a2", "abc>abd committed"), 1: hash("b1", "abc>abd committed")}, false},
		{"one does not refuse", evident, map[int]string{0: hash("a1", "abc>abd begun"), 1: hash("b1", "abc>abd committed")}, false},
		{"a joining node does not count", evident, map[int]string{0: hash("a1", "abc>abd committed"), 3: hash("d1", "abc>abd committed")}, false},
		{"no evidence yet", []string{"a1 committed 1 5", "b1 committed 1 5"}, map[int]string{0: hash("a1", "abc>abd committed"), 1: hash("b1", "abc>abd committed")}, false},
	} {
		f := changing("a b c- d+")
		f.look(c.looks...)
		sources := &Sources{Epochs: make([]string, 4)}
		for node, epoch := range c.sources {
			sources.Nodes |= quorum.Of(node)
			sources.Epochs[node] = epoch
		}
		if to, got := f.change.complete(3, stageOf("abc>abd begun"), "d1", 12*time.Second, 10*time.Second, sources); got != c.want {
			t.Errorf("%s: %v %v", c.what, to, got)
		}
	}
	// A node that missed the end gets it from a host with the new list, if more nodes have it than a
	// majority can do without.
	for epoch, want := range map[string]bool{hash("b1", "abc>abd done"): true, hash("b1", "abd"): true, hash("b1", "abd>abe begun"): true, hash("b1", "abc>abd committed"): false, "": false} {
		f := changing("a b d")
		sources := &Sources{Nodes: quorum.Of(1, 2), Epochs: []string{"", epoch, hash("d1", "abd")}}
		if to, got := f.change.complete(0, stageOf("abc>abd committed"), "a1", 12*time.Second, 10*time.Second, sources); got != want || got && to != stageOf("abc>abd done") {
			t.Errorf("a node that missed the end, beside %s: %v %v", epoch, to, got)
		}
	}
	two := &Sources{Nodes: quorum.Of(1), Epochs: []string{"", hash("b1", "c>ab done")}}
	if _, ok := changing("a b").change.complete(0, stageOf("c>ab committed"), "a1", 0, time.Second, two); !ok {
		t.Error("in a list of two, a node that missed the end does not get it")
	}
	for _, third := range []string{"e>abcd done", "e>abcd committed"} {
		four := &Sources{Nodes: quorum.Of(1, 2), Epochs: []string{"", hash("b1", "e>abcd done"), hash("c1", third), ""}}
		if _, ok := changing("a b c d").change.complete(0, stageOf("e>abcd committed"), "a1", 0, time.Second, four); ok != (third == "e>abcd done") {
			t.Errorf("a node of four that missed the end, beside one that is done and %s: %v", third, ok)
		}
	}
}
