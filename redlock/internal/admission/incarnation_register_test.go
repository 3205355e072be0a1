package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// registerOf returns a register of nodes named a, b, c and so on, which all may vote.
func registerOf(n int) *incarnationRegister {
	names := make([]string, n)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	r := newIncarnationRegister(names, quorum.Majority(n).Lists())
	for i := range names {
		r.noteLook(i, "", true, 1, 1)
	}
	return r
}

// A later word is believed if the voters that do not report it, together with the node, are no
// quorum. So one lying node supersedes no other, unless its vote is needed anyway.
func TestRegisterBelieves(t *testing.T) {
	old, next := newWord(1_000_000, ""), newWord(2_000_000, "")
	for _, c := range []struct{ n, down, reporters int }{
		{2, 0, 1}, {3, 0, 2}, {3, 1, 1}, {4, 0, 2}, {4, 1, 1}, {5, 0, 3}, {5, 1, 2}, {5, 2, 1}, {7, 0, 4}, {7, 3, 1},
	} {
		r := registerOf(c.n)
		for i := range c.down {
			r.noteNotVoting(c.n-1-i, 1)
		}
		if _, err := r.noteSeen(0, old, 1); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		r.noteReports(0, "a="+next, 1) // its own words about itself are in its epoch
		for from := 1; from < c.n-c.down; from++ {
			r.noteReports(from, "a="+next, 1)
			if superseded := r.superseded[0].Load(); superseded != (from >= c.reporters) {
				t.Errorf("%+v: %d report it: superseded is %t", c, from, superseded)
			}
		}
	}
}

// A word that is believed only for a moment causes no quarantine. A word that is believed for
// longer causes one, and supersedes the earlier word.
func TestRegisterSettles(t *testing.T) {
	r := registerOf(3)
	old, next := newWord(1_000_000, ""), newWord(2_000_000, "")
	see := func(word string, at time.Duration, want error) {
		t.Helper()
		if _, err := r.noteSeen(0, word, at); err != want {
			t.Errorf("at %v: %v, want %v", at, err, want)
		}
	}
	see(old, 1, nil)
	r.noteNotVoting(2, 1)
	r.noteReports(1, "a="+next, 2)
	see(old, 3, errMaybeSuperseded)
	r.noteLook(2, "", true, 4, 4)
	see(old, 5, nil)
	r.noteNotVoting(2, 6)
	see(old, 5+settleTime, errMaybeSuperseded)
	see(old, 6+settleTime, ErrSuperseded)
	last := newWord(0, r.newest(0))
	see(last, 7+settleTime, nil)
	r.noteReports(1, "", 8+settleTime)
	see(old, 9+settleTime, ErrSuperseded) // the later word was seen
	see(last, 9+settleTime, nil)
}

// If other nodes report several later words, the latest believable one counts.
func TestRegisterTakesTheLaterOne(t *testing.T) {
	r := registerOf(5)
	first, second, third := newWord(1, ""), newWord(2, ""), newWord(3, "")
	for from, c := range []struct{ said, want string }{1: {third, ""}, 2: {first, ""}, 3: {second, first}, 4: {third, second}} {
		if from == 0 {
			continue
		}
		r.noteReports(from, "a="+c.said, 1)
		if got := r.newest(0); got != c.want {
			t.Errorf("after %d: %q is believed, want %q", from, got, c.want)
		}
	}
}

// A host writes to a node the words that the node lacks, and nothing if it lacks none. The node
// keeps its other words. Words that it has lost are written again.
func TestRegisterReportsWhatNodeLacks(t *testing.T) {
	r := registerOf(5)
	word, far := newWord(1_000_000, ""), newWord(9_000_000, "")
	if missing := r.reportsFor(1); missing != "" {
		t.Errorf("when nothing is known: %q", missing)
	}
	r.noteSeen(0, word, 1)
	r.noteSeen(1, word, 1)
	r.noteReports(1, "d="+far, 1)
	want := "a=" + word + ",d=" + far
	if missing := r.reportsFor(1); missing != want {
		t.Errorf("missing %q, want %q", missing, want)
	}
	r.noteReports(1, want, 1)
	if missing := r.reportsFor(1); missing != "" {
		t.Errorf("when it has all words: %q", missing)
	}
	r.noteReports(1, "", 1)
	if missing := r.reportsFor(1); missing != "a="+word {
		t.Errorf("after a FLUSHALL: missing %q, want the word that was seen", missing)
	}
	for from := 2; from < 5; from++ {
		r.noteReports(from, "b="+far, 1)
	}
	if missing := r.reportsFor(0); r.newest(1) != far || missing != "b="+word {
		t.Errorf("%q is believed, and %q is missing; want %q, and the word that was seen", r.newest(1), missing, far)
	}
}

// Text that another program wrote is no word, or no word of these nodes. It is written to no
// node.
func TestRegisterIgnoresForeignText(t *testing.T) {
	r := registerOf(2)
	beyond := newWord(MaxNodeSeconds*1000, "")
	for _, words := range []string{"", ",", "=", "a", "a=", "a=w", "x=" + newWord(5, ""), "a=" + beyond,
		"a=" + strings.Repeat("A", longestWord) + newWord(5, ""), "a=not base 64 !"} {
		r.noteReports(1, words, 1)
		if word := r.newest(0); word != "" {
			t.Errorf("%q: %q is believed", words, word)
		}
		if missing := r.reportsFor(1); missing != "" {
			t.Errorf("%q: %q is missing", words, missing)
		}
	}
	if news, err := r.noteSeen(0, "b="+newWord(5, ""), 1); news || err != nil || r.newest(0) != "" {
		t.Errorf("an epoch without a word: %v, believed %q, news %t", err, r.newest(0), news)
	}
	r.noteNotVoting(1, 1)
	if r.noteLook(0, "a="+newWord(5, ""), true, 1, 1); r.newest(0) != "" {
		t.Errorf("a node's words about itself: %q is believed", r.newest(0))
	}
}

// A word is news when a lane sees it for the first time, even if it is superseded, and only once:
// each news makes the host look at all nodes.
func TestRegisterNews(t *testing.T) {
	r := registerOf(3)
	see := func(what, word string, at time.Duration, want bool, wantErr error) {
		t.Helper()
		if news, err := r.noteSeen(0, word, at); news != want || err != wantErr {
			t.Errorf("%s: news %t, %v; want %t, %v", what, news, err, want, wantErr)
		}
	}
	first, second, third := newWord(1_000_000, ""), newWord(2_000_000, ""), newWord(3_000_000, "")
	see("the first word", first, 1, true, nil)
	see("again", first, 2, false, nil)
	r.noteReports(1, "a="+third, 3)
	r.noteReports(2, "a="+third, 3)
	see("superseded a moment ago", first, 4, false, errMaybeSuperseded)
	see("another superseded word", second, 5, true, errMaybeSuperseded)
	see("again", second, 3+settleTime, false, ErrSuperseded)
	see("the first word once more", first, 4+settleTime, false, ErrSuperseded)
	see("the latest word", third, 5+settleTime, true, nil)
}

// The register knows since when enough nodes report a node's last word, so that each quorum
// includes one of them. That time applies to this word only, and starts when they last began to
// report it without a break.
func TestRegisterKnownSince(t *testing.T) {
	r := registerOf(5)
	r.noteSeen(0, newWord(1_000_000, ""), 1)
	for from := 1; from < 5; from++ {
		r.noteReports(from, "a="+r.newest(0), time.Duration(from))
		if got, want := r.knownSince(0, 0), time.Duration(from/3*3); got != want {
			t.Errorf("%d report it: since %v, want %v", from, got, want)
		}
	}
	for from, said := range []string{1: "", 2: "", 3: "a=" + r.newest(0)} {
		r.noteReports(from, said, 6)
	}
	if got := r.knownSince(0, 0); got != 0 {
		t.Errorf("two report it: since %v, want 0, because they are too few", got)
	}
	r.noteReports(1, "a="+r.newest(0), 7)
	if got := r.knownSince(0, 0); got != 7 {
		t.Errorf("three report it again: since %v, want 7", got)
	}
	r.noteSeen(0, newWord(0, r.newest(0)), 9)
	if got := r.knownSince(0, 0); got != 0 {
		t.Errorf("the next word: since %v, want 0, because no node reports it", got)
	}
	for from := 1; from < 5; from++ {
		r.noteReports(from, "a="+r.newest(0), 10)
	}
	next := newWord(0, r.newest(0))
	for from, want := range []time.Duration{1: 10, 2: 10, 3: 11} {
		if from == 0 {
			continue
		}
		r.noteReports(from, "a="+next, 11)
		if got := r.knownSince(0, 0); got != want {
			t.Errorf("%d report a word that was not seen here: since %v, want %v", from, got, want)
		}
	}
}

// A node that is silent for long does not count against a report. If it votes nevertheless, what
// is known of it is as old as the last look. This holds for each node.
func TestFreshness(t *testing.T) {
	f := &Fleet{options: Options{MaxTTL: time.Second}}
	latest := func(since time.Duration) time.Duration {
		return since + time.Second + maxStaleness - DriftAllowance(time.Second+maxStaleness)
	}
	for silent := range 3 {
		r := registerOf(3)
		f.register = r
		old, fresh := (silent+1)%3, (silent+2)%3
		r.noteSeen(old, newWord(1_000_000, ""), 1)
		later := r.names[old] + "=" + newWord(2_000_000, "")
		r.noteLook(silent, "", true, 2, 3)
		r.noteLook(old, "", true, 1+maxStaleness, 2+maxStaleness)
		r.noteLook(fresh, later, true, 2+maxStaleness, 2+maxStaleness)
		if a, superseded := r.freshness(2 + maxStaleness); a.Since != 2 || a.Silent != 0 || superseded != nil || r.superseded[old].Load() {
			t.Errorf("all nodes answer: %+v, superseded %v", a, superseded)
		}
		a, superseded := r.freshness(3 + maxStaleness)
		if a != (Freshness{Since: 1 + maxStaleness, Silent: 1 << silent, SilentSince: 2}) {
			t.Errorf("node %d is silent: %+v", silent, a)
		}
		if len(superseded) != 1 || superseded[0] != old || !r.superseded[old].Load() {
			t.Errorf("node %d is silent: superseded are %v, want only %d", silent, superseded, old)
		}
		for nodes, since := range map[quorum.Set]time.Duration{1<<old | 1<<fresh: a.Since, 1<<silent | 1<<fresh: a.SilentSince} {
			if got := f.LatestDeadline(a, nodes); got != latest(since) {
				t.Errorf("granted by %b: latest deadline %v, want %v", nodes, got, latest(since))
			}
		}
	}
}

// If several nodes are silent, the oldest look counts.
func TestFreshnessOfSeveralSilentNodes(t *testing.T) {
	for first := range 3 {
		r := registerOf(3)
		for node := range 3 {
			r.noteLook(node, "", true, time.Duration(2+(node+first)%3), 9)
		}
		if a, _ := r.freshness(5 + maxStaleness); a != (Freshness{Since: never, Silent: 0b111, SilentSince: 2}) {
			t.Errorf("first %d: %+v, want since 2", first, a)
		}
	}
}
