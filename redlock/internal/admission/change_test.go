package admission

import (
	"errors"
	"strconv"
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

// stageOf returns a stage of a change between lists of one letter for each node, or of no change. A number can be
// before it: "7 abc>abd begun"; otherwise it is 1.
func stageOf(text string) Stage {
	if number, rest, _ := strings.Cut(text, " "); rest != "" && number[0] < 'a' {
		s := stageOf(rest)
		s.Number, _ = strconv.ParseUint(number, 10, 32)
		return s
	}
	digest := func(names string) string { return listDigest(strings.Split(names, ""), DefaultPrefix) }
	before, rest, isChange := strings.Cut(text, ">")
	if !isChange {
		return Stage{Number: 1, Old: digest(before)}
	}
	after, word, _ := strings.Cut(rest, " ")
	for step := Begun; step <= Done; step++ {
		if step.String() == word {
			return Stage{Number: 1, Old: digest(before), New: digest(after), Step: step}
		}
	}
	panic("no step: " + text)
}

// A stage is written and read. Guards parseStage.
func TestStageText(t *testing.T) {
	for _, text := range []string{"abc", "abc>abd begun", "abc>abd committed", "a>b done", "7 abc", "4294967295 abc>abd begun"} {
		s := stageOf(text)
		if got, err := parseStage(s.String()); got != s || err != nil {
			t.Errorf("%s: read %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"1>a>b", "1>a>b>later", "1>a>b>done>", ">>", "a", "a>b>done", "0>a", "01>a", "-1>a", "x>a", "1", "4294967296>a"} {
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
		{"a b c", "abd>abe done", "another node list"},
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
		if f.change.serves(3, left) {
			t.Errorf("a node that left, and joins with its old state (%s), serves a host", step)
		}
		if joins, _, _, _ := f.change.noteRefused(3, left); joins {
			t.Errorf("a node that left joins (%s) before the number is known", step)
		}
		f.look("a1 2 abc 1 1", "b1 2 abc 1 1")
		if joins, _, to, _ := f.change.noteRefused(3, left); !joins || to != stageOf("2 abc>abd begun") {
			t.Errorf("a node that left joins (%s): %v %v", step, to, joins)
		}
		if joins, _, _, _ := f.change.noteRefused(3, stageOf("xyz")); joins {
			t.Error("a node of other lists joins by itself")
		}
		for _, other := range []string{"begun", "committed", "done"} {
			if joins, _, _, _ := f.change.noteRefused(3, stageOf("xyz>xy "+other)); joins {
				t.Errorf("a node of other nodes, in a change that is %s there, joins by itself", other)
			}
		}
		if joins, _, _, _ := f.change.noteRefused(3, stageOf("9 abcd>abc committed")); joins {
			t.Error("a node with a larger number joins")
		}
	}
}

// look looks at nodes: "a1 committed 3 7" is node a, word 1, seen to be committed in each second from 3
// to 7. Instead of the step there can be a stage: see stageOf.
func (f *Fleet) look(looks ...string) {
	for _, text := range looks {
		parts := strings.Fields(text)
		last := len(parts) - 2
		node, step := parts[0], strings.Join(parts[1:last], " ")
		s := Stage{Number: 1, Old: f.change.old, New: f.change.new}
		switch step {
		case "begun", "committed", "done":
			for s.Step = Begun; s.Step.String() != step; s.Step++ {
			}
		default:
			s = stageOf(step)
		}
		from, err1 := strconv.Atoi(parts[last])
		to, err2 := strconv.Atoi(parts[last+1])
		if err := errors.Join(err1, err2); err != nil {
			panic(err)
		}
		for at := from; at <= to; at++ {
			f.change.note(int(node[0]-'a'), node, s, time.Duration(at)*time.Second, time.Duration(at)*time.Second)
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
		{"one of them is done meanwhile", []string{"a1 committed 1 5", "a1 done 6 12", "b1 committed 2 12"}, false}, // that one is enough
		{"the third is late", []string{"a1 committed 1 12", "b1 committed 2 12", "c1 committed 9 12"}, true},
		{"a minority", []string{"a1 committed 1 20", "b1 begun 1 20"}, false},
		{"a joining node does not count", []string{"a1 committed 1 20", "d1 committed 1 20"}, false},
		{"too short", []string{"a1 committed 1 11", "b1 committed 2 11"}, false},
		{"the second was not seen since", []string{"a1 committed 1 5", "b1 committed 2 20"}, false},
		{"one lost its data and was admitted again", []string{"a1 committed 1 5", "a2 committed 8 12", "b1 committed 2 12"}, false},
		{"at different times", []string{"a1 committed 1 5", "a2 begun 6 7", "b1 committed 8 20"}, false},
		{"not seen for longer than max_ttl", []string{"a1 committed 1 2", "a1 committed 13 20", "b1 committed 2 20"}, true},
		{"lost its data, and long after that", []string{"a1 committed 1 5", "a2 committed 8 18", "b1 committed 2 18"}, true},
	} {
		f := changing("a b c- d+")
		f.look(c.looks...)
		if got := f.change.evidenceLocked(10*time.Second) != 0; got != c.want {
			t.Errorf("%s: evidence is %v", c.what, got)
		}
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
		commit uint64 // of the change with this number
		now    int
		node   int
		has    string
		want   string
	}{
		{"the first begins", "a b c- d+", []string{"a1 abc 9 9", "b1 abc 9 9"}, 0, 10, 0, "abc", "abc>abd begun"},
		{"not before a majority was seen", "a b c- d+", []string{"a1 abc 9 9"}, 0, 10, 0, "abc", "abc"},
		{"the second waits for the first", "a b c- d+", []string{"a1 abc 9 9", "b1 abc 9 9"}, 0, 10, 1, "abc", "abc"},
		{"and for a while", "a b c- d+", []string{"a1 begun 9 9", "b1 abc 9 9"}, 0, 10, 1, "abc", "abc"},
		{"then it begins", "a b c- d+", []string{"a1 begun 5 9", "b1 abc 9 9"}, 0, 10, 1, "abc", "abc>abd begun"},
		{"after the change before", "a b c- d+", []string{"a1 abx>abc done 9 9", "b1 abx>abc done 9 9"}, 0, 10, 0, "abx>abc done", "2 abc>abd begun"},
		{"after it was undone", "a b c- d+", []string{"a1 begun 5 5", "b1 begun 5 5", "a1 abc 9 9", "b1 abc 9 9"}, 1, 10, 0, "abc", "abc>abd begun"},
		{"not beside another change", "a b c- d+", []string{"a1 abc>abe begun 9 9", "b1 abc 9 9"}, 0, 10, 0, "abc>abe begun", "abc>abe begun"},
		{"no commit by itself", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, 0, 10, 0, "abc>abd begun", "abc>abd begun"},
		{"the operator commits", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, 1, 10, 0, "abc>abd begun", "abc>abd committed"},
		{"one after the other", "a b c- d+", []string{"a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, 1, 10, 1, "abc>abd begun", "abc>abd begun"},
		{"another host continues", "a b c- d+", []string{"a1 committed 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9"}, 0, 10, 1, "abc>abd begun", "abc>abd committed"},
		{"a commit of the change before is over", "a b c- d+", []string{"a1 3 abc>abd begun 1 9", "b1 3 abc>abd begun 1 9", "c1 committed 1 9", "d1 3 abc>abd begun 1 9"}, 1, 10, 0, "3 abc>abd begun", "3 abc>abd begun"},
		{"a joining node is not committed", "a b c- d+", []string{"a1 committed 1 9", "b1 committed 1 9", "c1 committed 1 9", "d1 begun 1 9"}, 1, 10, 3, "abc>abd begun", "abc>abd begun"},
		{"a joining node that left in an earlier change", "a b c- d+", []string{"a1 3 abc>abd begun 1 5", "b1 3 abc>abd begun 1 5", "c1 3 abc>abd begun 1 5"}, 0, 10, 3, "2 abd>abc committed", "3 abc>abd begun"},
		{"a change that is done does not begin again", "a b c- d+", []string{"a1 2 abd 1 9", "b1 2 abd 1 9"}, 1, 10, 0, "2 abd", "2 abd"},
		{"nor when the nodes were changed back", "a b c- d+", []string{"a1 committed 1 2", "b1 committed 1 2", "a1 3 abc 9 9", "b1 3 abc 9 9"}, 1, 10, 0, "3 abc", "3 abc"},
		{"nor does the next one", "a b c- d+", []string{"a1 2 abd>abe begun 1 9", "b1 2 abd 1 9"}, 1, 10, 0, "2 abd>abe begun", "2 abd>abe begun"},
		{"an old host changes nothing", "a b c", []string{"a1 abc>abd begun 1 9", "b1 abc 1 9"}, 0, 10, 0, "abc>abd begun", "abc>abd begun"},
	} {
		f := changing(c.host)
		f.look(c.looks...)
		f.change.asked, f.change.askedBy = Stage{Number: c.commit, Old: f.change.old, New: f.change.new, Step: Begun}, time.Minute
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
	f.change.note(1, "b1", stageOf("abc>abd begun"), 0, 0)
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

// An operator's commit is for one change and a short time: not for the same change, begun again after an undo that this
// host did not see. Guards change.isCommittingLocked.
func TestUndoneChangeIsNotCommitted(t *testing.T) {
	f := changing("a b c- d+")
	f.look("a1 begun 1 9", "b1 begun 1 9", "c1 begun 1 9", "d1 begun 1 9")
	for node := range f.members {
		f.register.voting[node] = true
	}
	if err := f.Commit(9 * time.Second); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[time.Duration]Step{13 * time.Second: Committed, 20 * time.Second: Begun} { // an undo comes after ten seconds
		if got, _ := f.change.next(0, stageOf("abc>abd begun"), now, 10*time.Second, func(int) bool { return true }); got.Step != want {
			t.Errorf("after it was asked for at 9s, at %v: %v", now, got)
		}
	}
}

// hash is what is read from a node: its epoch.
func hash(word, stage string) string {
	e := Epoch{RunID: "r", Word: word, MaxTTL: time.Second, Stage: stageOf(stage).String(), Name: "n"}
	return e.String()
}

// A node that lost its data gets the latest stage of the nodes from which its counters are copied.
// Otherwise old hosts could get a majority again. Guards change.admits.
func TestStageOfAdmitted(t *testing.T) {
	for _, c := range []struct {
		host    string
		sources [4]string
		want    string
	}{
		{"a b c", [4]string{"", "abc", "abc"}, "abc"},
		{"a b c", [4]string{"", "abc>abd begun", "abc"}, "abc>abd begun"},
		{"a b c", [4]string{"", "abd>abc done", "abd>abc done"}, "abd>abc done"},
		{"a b c", [4]string{"", "7 abd>abc done", "6 abc"}, "7 abd>abc done"}, // c missed a change to abd and back
		{"a b c- d+", [4]string{"", "abc", "abc"}, "abc>abd begun"},
		{"a b c- d+", [4]string{"", "abc>abd begun", "abc>abd committed"}, "abc>abd committed"},
		{"a b c- d+", [4]string{"", "abc>abd done", "abc>abd committed", "abc>abd done"}, "abc>abd done"},
		{"a b c- d+", [4]string{"", "abc>abd done", "abc>abd committed", "abc>abd begun"}, "abc>abd done"},
		{"a b c- d+", [4]string{"", "7 abc>abd begun", "7 abc>abd begun", "6 abd"}, "7 abc>abd begun"}, // d missed the change in which it left
		{"a b c- d+", [4]string{"", "", "7 abc>abd begun", "6 abd"}, "7 abc>abd begun"},
		{"a b c- d+", [4]string{"", "7 abx>abc done", "7 abx>abc done"}, "7 abx>abc done"}, // then this change begins there
		{"a b c- d+", [4]string{"", "2 abd", "abc>abd committed", "2 abd"}, "2 abd"},
		{"a b c- d+", [4]string{"", "2 abd>abe begun", "abc>abd committed", "2 abd"}, "2 abd>abe begun"},
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
		if to, got := f.change.complete(3, stageOf("abc>abd begun"), "d1", 10*time.Second, sources); got != c.want {
			t.Errorf("%s: %v %v", c.what, to, got)
		}
	}
}

// A node that missed steps of earlier changes gets the list in use from a node that shows its number. A node with
// another number shows nothing, and the first one needs evidence. Guards change.complete, change.isBehindLocked.
func TestNodeBehind(t *testing.T) {
	for _, c := range []struct {
		what   string
		host   string
		looks  []string
		has    string // node a
		source string // node b
		want   string // "": it stays
	}{
		{"missed the end of a change", "a b d", []string{"b1 abc>abd done 1 9", "c1 abc>abd done 1 9"}, "abc>abd committed", "abc>abd done", "abc>abd done"},
		{"missed all of it", "a b d", []string{"b1 abc>abd done 1 9", "c1 abc>abd done 1 9"}, "abc>abd begun", "abc>abd done", "abc>abd done"},
		{"missed a change there and back", "a b c", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "abc", "3 abc", "3 abc"},
		{"and shows the commit", "a b c", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "abc>abd committed", "3 abc>abe begun", "3 abc>abe begun"},
		{"or the way back", "a b c", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "2 abd>abc committed", "3 abc", "3 abc"},
		{"one other is done", "a b d", []string{"b1 abc>abd done 1 9", "c1 abc>abd committed 1 9"}, "abc>abd committed", "abc>abd done", "abc>abd done"},
		{"the other is behind, too", "a b c d e", []string{"b1 abcde 1 9", "c1 3 abcde 1 9", "d1 3 abcde 1 9", "e1 3 abcde 1 9"}, "2 x>abcde committed", "abcde", ""},
		{"nothing was heard of the other", "a b c", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "2 abd>abc committed", "", ""},
		{"not behind", "a b c", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "3 abc>abd committed", "3 abc", ""},
		{"too few were seen", "a b c", []string{"b1 3 abc 1 9"}, "2 abd>abc committed", "3 abc", ""},
		{"a host with both lists", "a b c- d+", []string{"b1 3 abc 1 9", "c1 3 abc 1 9"}, "2 abx>abc committed", "3 abc", "3 abc"},
		{"the new list is in use", "a b c- d+", []string{"a1 begun 1 9", "b1 done 1 9", "c1 begun 1 9"}, "abc>abd begun", "abc>abd done", "abc>abd done"},
		{"it was, in an earlier change", "a b c- d+", []string{"a1 3 abc>abd begun 1 9", "b1 3 abc>abd begun 1 9", "c1 3 abc>abd begun 1 9"}, "3 abc>abd begun", "2 abd", ""},
	} {
		f := changing(c.host)
		f.look(c.looks...)
		sources := &Sources{Nodes: quorum.Of(1), Epochs: make([]string, 4)}
		if c.source != "" {
			sources.Epochs[1] = hash("b1", c.source)
		}
		want := c.want
		if want == "" {
			want = c.has
		}
		if to, ok := f.change.complete(0, stageOf(c.has), "a1", 10*time.Second, sources); ok != (c.want != "") || ok && to != stageOf(want) {
			t.Errorf("%s: %v %v, want %q", c.what, to, ok, c.want)
		}
	}
}

// A host remembers over a restart that its list was replaced until that list is in use again. What is remembered of
// another list, or does not match the nodes, is forgotten. Guards Fleet.NoteReplacedList.
func TestRememberedReplacedList(t *testing.T) {
	for _, c := range []struct{ text, host, looks string }{
		{"abc", "a b d", ""},
		{"abc", "a b c- d+", ""},
		{"abc>abd committed", "a b c", ""},
		{"2 abc", "a b c", "3 abc"},
		{"99 abc", "a b c", "3 abc"},
	} {
		f := changing(c.host)
		f.NoteReplacedList(stageOf(c.text).String())
		if c.looks != "" {
			f.look("a1 "+c.looks+" 1 1", "b1 "+c.looks+" 1 1")
		}
		if got := f.ReplacedList(); got != "" {
			t.Errorf("a host with %s that remembers %s, nodes with %q: %q", c.host, c.text, c.looks, got)
		}
	}
	f := changing("a b c")
	f.NoteReplacedList("text")
	want := stageOf("2 abc").String()
	f.NoteReplacedList(want)
	if f.look("a1 1 abc 1 1", "b1 1 abc 1 1"); f.ReplacedList() != want {
		t.Errorf("nodes with an earlier number: it remembers %q, want %q", f.ReplacedList(), want)
	}
}

// A host asks the other nodes for a node that is behind if one of them shows the list in use: it would ask in vain each
// second otherwise. Guards change.isBehindLocked.
func TestNodeBehindAsksIfShown(t *testing.T) {
	for stage, want := range map[string]bool{"3 abc": true, "3 abc>abd begun": true, "3 abc>abd committed": false} {
		for _, host := range []string{"a b c", "a b c- d+"} {
			f := changing(host)
			f.look("b1 "+stage+" 1 9", "c1 "+stage+" 1 9")
			if got := f.change.isBehindLocked(0, stageOf("2 abx>abc committed")); got != want {
				t.Errorf("a host with %s, the other nodes with %s: asks is %v", host, stage, got)
			}
		}
	}
}

// A host finds out the number of its list from a majority. It refuses a node with a number that the others have not
// reached, and no node can make it believe that. Guards change.learnLocked, change.isAlien.
func TestNumberOfList(t *testing.T) {
	for _, c := range []struct {
		what, host string
		looks      []string
		want       uint64
		alien      string // a stage of node a
	}{
		{"nothing was seen", "a b c", nil, 0, ""},
		{"one of three", "a b c", []string{"a1 3 abc 1 1"}, 0, ""},
		{"a majority", "a b c", []string{"a1 3 abc 1 1", "b1 3 abc 1 1"}, 3, "5 abc"},
		{"one is behind", "a b c", []string{"a1 abc 1 1", "b1 3 abc 1 1", "c1 3 abc 1 1"}, 3, "5 abc"},
		{"a change to this list is done on one", "a b c", []string{"a1 7 abd>abc done 1 1", "b1 7 abd>abc committed 1 1", "c1 7 abd>abc begun 1 1"}, 8, "9 abc"},
		{"one is restored from others", "a b c", []string{"a1 99 abc 1 1", "b1 3 abc 1 1", "c1 3 abc 1 1"}, 3, "99 abc"},
		{"one is in a change of others", "a b c", []string{"a1 99 abc>abd begun 1 1", "b1 3 abc 1 1", "c1 3 abc 1 1"}, 3, "99 abc>abd begun"},
		{"one node", "a", []string{"a1 3 a 1 1"}, 3, "5 a"},
		{"a change, and the old nodes are gone", "a- b+ c+", []string{"b1 7 a>bc done 1 1", "c1 7 a>bc committed 1 1"}, 7, ""},
		{"one new node of a change is restored from others", "a- b+ c+", []string{"b1 99 a>bc done 1 1", "c1 7 a>bc begun 1 1"}, 7, ""},
		{"one new node of a change", "a- b+ c+", []string{"b1 99 a>bc done 1 1"}, 0, ""},
		{"one of others was seen first", "a b c", []string{"a1 4 abc>abd committed 1 1", "b1 3 abc 1 1", "c1 3 abc 1 1"}, 4, "6 abc"},

		{"a change", "a b c- d+", []string{"a1 7 abc>abd begun 1 1", "b1 7 abc>abd begun 1 1", "d1 99 abc>abd begun 1 1"}, 7, "9 abd"},
	} {
		f := changing(c.host)
		f.look(c.looks...)
		if got := f.change.number; got != c.want {
			t.Errorf("%s: number %d, want %d", c.what, got, c.want)
		}
		if c.alien != "" && !f.change.isAlien(stageOf(c.alien)) || f.change.isAlien(Stage{Number: c.want}) {
			t.Errorf("%s: %q is not of other nodes, or the number is", c.what, c.alien)
		}
	}
}

// A host that was refused remembers that its list is not in use, until nodes serve it again. Guards change.isReplaced.
func TestListIsReplaced(t *testing.T) {
	for _, c := range []struct {
		what     string
		refusals []string // by node
		looks    []string
		want     bool
	}{
		{"a new host", nil, nil, false},
		{"a commit", []string{"abc>abd committed"}, nil, true},
		{"a change to it", []string{"abd>abc begun"}, nil, true},
		{"other nodes", []string{"xyz"}, nil, false},
		{"and back", []string{"abc>abd committed"}, []string{"a1 3 abc 1 1", "b1 3 abc 1 1"}, false},
		{"and back on one node", []string{"abc>abd committed"}, []string{"a1 3 abc 1 1"}, true},
		{"a number of others", []string{"99 abc>abd committed"}, []string{"b1 3 abc 1 1", "c1 3 abc 1 1"}, false},
	} {
		for _, isKnown := range []bool{true, false} {
			f := changing("a b c")
			if isKnown {
				f.look(c.looks...)
			}
			for node, stage := range c.refusals {
				f.change.noteRefused(node, stageOf(stage))
			}
			f.look(c.looks...)
			if got := f.change.isReplaced(); got != c.want {
				t.Errorf("%s: replaced is %v, with the number known first: %v", c.what, got, isKnown)
			}
			next := changing("a b c")
			next.NoteReplacedList(f.ReplacedList())
			if next.ReplacedList() != f.ReplacedList() || (f.ReplacedList() != "") != c.want {
				t.Errorf("%s: after a restart replaced is %q, before it %q", c.what, next.ReplacedList(), f.ReplacedList())
			}
		}
	}
}
