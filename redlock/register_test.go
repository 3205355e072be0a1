package redlock

import (
	"strings"
	"testing"
	"time"
)

// registerOf is of nodes named a, b, c and so on.
func registerOf(n int) *register {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = string(rune('a' + i))
	}
	return newRegister(nodes, quorumOf(n))
}

// A later word is believed when so many other nodes say it that one cannot have made it
// up; of two or three nodes, where a quorum has no more, one is enough.
func TestRegisterWantsSources(t *testing.T) {
	old, next := newWord(1_000_000, ""), newWord(2_000_000, "")
	for n, sources := range map[int]int{2: 1, 3: 1, 4: 2, 5: 2, 7: 2} {
		r := registerOf(n)
		if _, err := r.see(0, old); err != nil {
			t.Fatalf("%d nodes: %v", n, err)
		}
		r.note(0, "a="+next, 1) // what it says of itself is in its epoch
		for from := 1; from < n; from++ {
			r.note(from, "a="+next, 1)
			if outdone := r.outdone[0].Load(); outdone != (from >= sources) {
				t.Errorf("%d nodes, %d say so: outdone is %t, want it with %d", n, from, outdone, sources)
			}
		}
		if _, err := r.see(0, old); err != errOutdone {
			t.Errorf("%d nodes: the old word again: %v", n, err)
		}
		if _, err := r.see(0, newWord(1_500_000, r.newest(0))); err != nil || r.outdone[0].Load() {
			t.Errorf("%d nodes: the word after the last: %v, outdone %t", n, err, r.outdone[0].Load())
		}
	}
}

// Of several later words that others say, the one counts that enough of them reach.
func TestRegisterTakesTheLaterOne(t *testing.T) {
	r := registerOf(5)
	first, second, third := newWord(1, ""), newWord(2, ""), newWord(3, "")
	r.note(1, "a="+third, 1)
	r.note(2, "a="+first, 1)
	if got := r.newest(0); got != first {
		t.Errorf("believed: %q, want %q, which two reach", got, first)
	}
	r.note(3, "a="+second, 1)
	if got := r.newest(0); got != second {
		t.Errorf("believed: %q, want %q, which two reach", got, second)
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
	r.see(0, word)
	r.see(1, word)
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
		t.Errorf("after a FLUSHALL: %q, want what is believed", owed)
	}
}

// What somebody else wrote is no word, or not of these nodes, and is passed on to nobody.
func TestRegisterLeavesOutWhatIsNone(t *testing.T) {
	r := registerOf(3)
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
	if _, err := r.see(0, "b="+newWord(5, "")); err != nil || r.newest(0) != "" {
		t.Errorf("an epoch of no word: %v, believed %q", err, r.newest(0))
	}
}

// Since when enough others say a node's last word, so that one of them is in each quorum,
// is told of that word alone.
func TestRegisterTold(t *testing.T) {
	r := registerOf(5)
	r.see(0, newWord(1_000_000, ""))
	for from := 1; from < 5; from++ {
		r.note(from, "a="+r.newest(0), time.Duration(from))
		if got, want := r.told(0), time.Duration(from/3*3); got != want {
			t.Errorf("%d say so: since %v, want %v", from, got, want)
		}
	}
	r.see(0, newWord(0, r.newest(0)))
	if got := r.told(0); got != 0 {
		t.Errorf("the next word is said since %v, want that it is not", got)
	}
}
