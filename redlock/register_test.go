package redlock

import (
	"strings"
	"testing"
	"time"
)

// registerOf is of nodes named a, b, c and so on, all of which may vote.
func registerOf(n int) *register {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = string(rune('a' + i))
	}
	r := newRegister(nodes, quorumOf(n))
	for i := range nodes {
		r.look(i, "", true, 1, 1)
	}
	return r
}

// A later word is believed when those who do not say it and may vote are no quorum with
// the node: so one alone that lies outdoes nobody, unless its vote is needed anyway.
func TestRegisterBelieves(t *testing.T) {
	old, next := newWord(1_000_000, ""), newWord(2_000_000, "")
	for _, c := range []struct{ n, down, sayers int }{
		{2, 0, 1}, {3, 0, 2}, {3, 1, 1}, {4, 0, 2}, {4, 1, 1}, {5, 0, 3}, {5, 1, 2}, {5, 2, 1}, {7, 0, 4}, {7, 3, 1},
	} {
		r := registerOf(c.n)
		for i := range c.down {
			r.noVoter(c.n-1-i, 1)
		}
		if _, err := r.see(0, old, 1); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		r.note(0, "a="+next, 1) // what it says of itself is in its epoch
		for from := 1; from < c.n-c.down; from++ {
			r.note(from, "a="+next, 1)
			if outdone := r.outdone[0].Load(); outdone != (from >= c.sayers) {
				t.Errorf("%+v: %d say so: outdone is %t", c, from, outdone)
			}
		}
	}
}

// Of what is believed for a moment alone no quarantine follows; of what is believed for
// longer one does, and it outdoes what was said.
func TestRegisterSettles(t *testing.T) {
	r := registerOf(3)
	old, next := newWord(1_000_000, ""), newWord(2_000_000, "")
	see := func(word string, at time.Duration, want error) {
		t.Helper()
		if _, err := r.see(0, word, at); err != want {
			t.Errorf("at %v: %v, want %v", at, err, want)
		}
	}
	see(old, 1, nil)
	r.noVoter(2, 1)
	r.note(1, "a="+next, 2)
	see(old, 3, errDoubted)
	r.look(2, "", true, 4, 4)
	see(old, 5, nil)
	r.noVoter(2, 6)
	see(old, 5+settling, errDoubted)
	see(old, 6+settling, errOutdone)
	last := newWord(0, r.newest(0))
	see(last, 7+settling, nil)
	r.note(1, "", 8+settling)
	see(old, 9+settling, errOutdone) // it was seen
	see(last, 9+settling, nil)
}

// Of several later words that others say, the latest counts that is to be believed.
func TestRegisterTakesTheLaterOne(t *testing.T) {
	r := registerOf(5)
	first, second, third := newWord(1, ""), newWord(2, ""), newWord(3, "")
	for from, c := range []struct{ said, want string }{1: {third, ""}, 2: {first, ""}, 3: {second, first}, 4: {third, second}} {
		if from == 0 {
			continue
		}
		r.note(from, "a="+c.said, 1)
		if got := r.newest(0); got != c.want {
			t.Errorf("after %d: %q is believed, want %q", from, got, c.want)
		}
	}
}

// A node is told what it lacks, keeps what it says beyond that, and is told nothing
// where it lacks nothing; what it has lost it is told again.
func TestRegisterOwes(t *testing.T) {
	r := registerOf(5)
	word, far := newWord(1_000_000, ""), newWord(9_000_000, "")
	if owed := r.owed(1); owed != "" {
		t.Errorf("when nothing is known: %q", owed)
	}
	r.see(0, word, 1)
	r.see(1, word, 1)
	r.note(1, "d="+far, 1)
	want := "a=" + word + ",d=" + far
	if owed := r.owed(1); owed != want {
		t.Errorf("owed %q, want %q", owed, want)
	}
	r.note(1, want, 1)
	if owed := r.owed(1); owed != "" {
		t.Errorf("when it says all: %q", owed)
	}
	r.note(1, "", 1)
	if owed := r.owed(1); owed != "a="+word {
		t.Errorf("after a FLUSHALL: %q, want what was seen", owed)
	}
	for from := 2; from < 5; from++ {
		r.note(from, "b="+far, 1)
	}
	if owed := r.owed(0); r.newest(1) != far || owed != "b="+word {
		t.Errorf("%q is believed, and owed %q; want %q, and what was seen", r.newest(1), owed, far)
	}
}

// What somebody else wrote is no word, or not of these nodes, and is passed on to nobody.
func TestRegisterLeavesOutWhatIsNone(t *testing.T) {
	r := registerOf(2)
	beyond := newWord(maxNodeSeconds*1000, "")
	for _, words := range []string{"", ",", "=", "a", "a=", "a=w", "x=" + newWord(5, ""), "a=" + beyond,
		"a=" + strings.Repeat("A", longestWord) + newWord(5, ""), "a=not base 64 !"} {
		r.note(1, words, 1)
		if word := r.newest(0); word != "" {
			t.Errorf("%q: %q is believed", words, word)
		}
		if owed := r.owed(1); owed != "" {
			t.Errorf("%q: owed %q", words, owed)
		}
	}
	if news, err := r.see(0, "b="+newWord(5, ""), 1); news || err != nil || r.newest(0) != "" {
		t.Errorf("an epoch of no word: %v, believed %q; it is news: %t", err, r.newest(0), news)
	}
	r.noVoter(1, 1)
	if r.look(0, "a="+newWord(5, ""), true, 1, 1); r.newest(0) != "" {
		t.Errorf("a node's own words of itself: %q is believed", r.newest(0))
	}
}

// News is what a lane sees for the first time, be it outdone, and nothing twice: each makes
// all nodes be looked at.
func TestRegisterNews(t *testing.T) {
	r := registerOf(3)
	see := func(what, word string, at time.Duration, want bool, wantErr error) {
		t.Helper()
		if news, err := r.see(0, word, at); news != want || err != wantErr {
			t.Errorf("%s: news %t, %v; want %t, %v", what, news, err, want, wantErr)
		}
	}
	first, second, third := newWord(1_000_000, ""), newWord(2_000_000, ""), newWord(3_000_000, "")
	see("the first one", first, 1, true, nil)
	see("again", first, 2, false, nil)
	r.note(1, "a="+third, 3)
	r.note(2, "a="+third, 3)
	see("outdone a moment ago", first, 4, false, errDoubted)
	see("another one that is", second, 5, true, errDoubted)
	see("again", second, 3+settling, false, errOutdone)
	see("the former one", first, 4+settling, false, errOutdone)
	see("the last one", third, 5+settling, true, nil)
}

// Since when enough others say a node's last word, so that one of them is in each quorum,
// is told of that word alone, and from when on they have not stopped to say it.
func TestRegisterTold(t *testing.T) {
	r := registerOf(5)
	r.see(0, newWord(1_000_000, ""), 1)
	for from := 1; from < 5; from++ {
		r.note(from, "a="+r.newest(0), time.Duration(from))
		if got, want := r.told(0), time.Duration(from/3*3); got != want {
			t.Errorf("%d say so: since %v, want %v", from, got, want)
		}
	}
	for from, said := range []string{1: "", 2: "", 3: "a=" + r.newest(0)} {
		r.note(from, said, 6)
	}
	if got := r.told(0); got != 0 {
		t.Errorf("two say so: since %v, want that they are too few", got)
	}
	r.note(1, "a="+r.newest(0), 7)
	if got := r.told(0); got != 7 {
		t.Errorf("three say so again: since %v, want 7", got)
	}
	r.see(0, newWord(0, r.newest(0)), 9)
	if got := r.told(0); got != 0 {
		t.Errorf("the next word is said since %v, want that it is not", got)
	}
	for from := 1; from < 5; from++ {
		r.note(from, "a="+r.newest(0), 10)
	}
	next := newWord(0, r.newest(0))
	for from, want := range []time.Duration{1: 10, 2: 10, 3: 11} {
		if from == 0 {
			continue
		}
		r.note(from, "a="+next, 11)
		if got := r.told(0); got != want {
			t.Errorf("%d say one that was not seen here: since %v, want %v", from, got, want)
		}
	}
}

// Who is not heard for long is no dissenter, and what is known of him is as old as it is
// where he votes nevertheless. Whoever it is.
func TestRegisterAware(t *testing.T) {
	f := &fleet{options: &Options{MaxTTL: time.Second}}
	latest := func(since time.Duration) time.Duration {
		return since + time.Second + unaware - drift(time.Second+unaware)
	}
	for silent := range 3 {
		r := registerOf(3)
		f.words = r
		old, fresh := (silent+1)%3, (silent+2)%3
		r.see(old, newWord(1_000_000, ""), 1)
		later := r.names[old] + "=" + newWord(2_000_000, "")
		r.look(silent, "", true, 2, 3)
		r.look(old, "", true, 1+unaware, 2+unaware)
		r.look(fresh, later, true, 2+unaware, 2+unaware)
		if a, outdone := r.aware(2 + unaware); a.since != 2 || a.silent != 0 || outdone != nil || r.outdone[old].Load() {
			t.Errorf("all are heard: %+v, outdone %v", a, outdone)
		}
		a, outdone := r.aware(3 + unaware)
		if a != (awareness{since: 1 + unaware, silent: 1 << silent, before: 2}) {
			t.Errorf("node %d is not: %+v", silent, a)
		}
		if len(outdone) != 1 || outdone[0] != old || !r.outdone[old].Load() {
			t.Errorf("node %d is not: outdone are %v, want %d alone", silent, outdone, old)
		}
		for nodes, since := range map[uint64]time.Duration{1<<old | 1<<fresh: a.since, 1<<silent | 1<<fresh: a.before} {
			if got := f.latest(a, nodes); got != latest(since) {
				t.Errorf("granted by %b: %v at the latest, want %v", nodes, got, latest(since))
			}
		}
	}
}

// Of several who are not heard, what is known the longest ago counts.
func TestRegisterAwareOfSeveral(t *testing.T) {
	for first := range 3 {
		r := registerOf(3)
		for node := range 3 {
			r.look(node, "", true, time.Duration(2+(node+first)%3), 9)
		}
		if a, _ := r.aware(5 + unaware); a != (awareness{since: never, silent: 0b111, before: 2}) {
			t.Errorf("the %d. was looked at first: %+v, want since 2", first, a)
		}
	}
}
