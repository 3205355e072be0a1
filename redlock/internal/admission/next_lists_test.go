package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// A host takes other lists if enough nodes serve them. The new list alone comes too early before the
// change is done, the old one too late once a node has the commit. Guards Fleet.ServesLists.
func TestServesLists(t *testing.T) {
	for _, c := range []struct {
		host          string
		nodes         string // stages by node; "-": it did not answer
		before, after string
		commits       bool // the operator has committed, and no node shows it yet
		want          error
	}{
		{"a b+ c+", "a>abc begun,a>abc begun,a>abc begun", "abc", "abc", false, ErrTooEarly},
		{"a b+ c+", "a>abc committed,a>abc begun,a>abc begun", "abc", "abc", false, ErrTooEarly},
		{"a b+ c+", "a>abc done,a>abc done,a>abc begun", "abc", "abc", false, ErrTooEarly},
		{"a b+ c+", "a>abc done,a>abc done,a>abc done", "abc", "abc", false, nil},
		{"a b+ c+", "a>abc done,a>abc done,-", "abc", "abc", false, nil},
		{"a b+ c+", "a>abc done,-,-", "abc", "abc", false, ErrUnknown},
		{"a b+ c+", "-,-,-", "abc", "abc", false, ErrUnknown},
		{"a b+ c+", "a>abc begun,a>abc begun,a>abc begun", "a", "a", false, nil},
		{"a b+ c+", "a,-,-", "a", "a", false, nil},
		{"a b+ c+", "a>abc begun,a>abc begun,a>abc begun", "a", "a", true, ErrTooLate},
		{"a b+ c+", "a>abc committed,a>abc begun,a>abc begun", "a", "a", false, ErrTooLate},
		{"a b+ c+", "-,a>abc begun,a>abc begun", "a", "a", false, ErrUnknown},
		{"a b c- d+", "abc>abd begun,abc>abd committed,abc>abd begun,abc>abd begun", "abc", "abc", false, ErrTooLate},
		{"a b c- d+", "abc>abd begun,abc>abd begun,-,-", "abc", "abc", false, nil},
		{"a b c- d+", "abc>abd begun,-,-,-", "abc", "abc", false, ErrUnknown},
		{"a b c- d+", "abc>abd done,abc>abd done,abc>abd committed,abc>abd done", "abd", "abd", false, nil},
	} {
		f := changing(c.host)
		if c.commits {
			f.change.asked, f.change.askedBy = f.change.stage(), time.Second
		}
		if err := f.ServesLists(0, strings.Split(c.before, ""), strings.Split(c.after, ""), showing(c.nodes)); err != c.want {
			t.Errorf("a host with %s, nodes with %s: the lists %s and %s: %v, want %v", c.host, c.nodes, c.before, c.after, err, c.want)
		}
	}
}

// A host with one list, or another change, is refused lists that too few nodes serve, with the reason of
// the nodes. Guards Fleet.ServesLists.
func TestServesOtherLists(t *testing.T) {
	for _, c := range []struct{ host, nodes, before, after, want string }{
		{"a b c", "abc,abc,abc", "abc", "def", ""},
		{"a b c", "abc,-,-", "abc", "abd", ""}, // nobody knows of a reason
		{"a b c", "abc>abd committed,abc>abd committed,abc>abd committed", "abc", "abd", ""},
		{"a b c", "abc>abd committed,abc>abd committed,abc>abd committed", "abc", "abe", "has the old list"},
		{"a b c", "abc>abd committed,-,-", "abc", "abe", ""}, // the others may serve it
		{"a b c", "abc>abd done,abc>abd done,abc>abd committed", "abd", "abd", ""},
		{"a b c", "abc>abd committed,abc>abd committed,abc>abd committed", "abd", "abd", "not complete on this node"},
		{"a b c", "abc>d committed,abc>d committed,abc>d committed", "d", "d", ""}, // this host knows no node of that list
		{"a b d", "abc>abd done,abc>abd done,abc>abd done", "abd", "abe", ""},
		{"a b c- d+", "abc>abd begun,abc>abd begun,abc>abd begun,abc>abd begun", "abd", "abe", "another change of the nodes is in progress"},
		{"a b c- d+", "abc>abd begun,abc>abd begun,abc>abd begun,abc>abd begun", "abc", "abe", ""},
		{"a b c- d+", "abc>abd done,abc>abd done,abc>abd done,abc>abd done", "abd", "abe", ""},
	} {
		f := changing(c.host)
		err := f.ServesLists(0, strings.Split(c.before, ""), strings.Split(c.after, ""), showing(c.nodes))
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a host with %s, nodes with %s: the lists %s and %s: %v, want %q", c.host, c.nodes, c.before, c.after, err, c.want)
		}
	}
}

// Until the nodes have shown the commit, and after it, an undo is refused on each host, with the reason
// that holds. Guards Fleet.CanUndo.
func TestUndoOfACommit(t *testing.T) {
	for _, c := range []struct {
		host  string
		look  string
		asked bool
		want  error
	}{
		{"a b c- d+", "a1 begun 1 9", false, ErrIsJoint},
		{"a b c- d+", "a1 begun 1 9", true, ErrCommitted},
		{"a b c- d+", "a1 committed 1 9", false, ErrCommitted},
		{"a b c- d+", "a1 done 1 9", false, ErrCommitted},
	} {
		f := changing(c.host)
		f.look(c.look)
		if c.asked {
			f.change.asked, f.change.askedBy = f.change.stage(), time.Second
		}
		if err := f.CanUndo(0); !errors.Is(err, c.want) {
			t.Errorf("a host with %s, %s: %v, want %v", c.host, c.look, err, c.want)
		}
	}
}

// showing returns what nodes answer that have these stages.
func showing(stages string) *Sources {
	all := strings.Split(stages, ",")
	sources := &Sources{Counters: new(Counters), Epochs: make([]string, len(all))}
	for node, text := range all {
		if text == "-" {
			continue
		}
		sources.Nodes |= quorum.Of(node)
		e := Epoch{RunID: "r", Word: "w", MaxTTL: 10e9, Stage: stageOf(text).String(), Name: "n"}
		sources.Epochs[node] = e.String()
	}
	return sources
}
