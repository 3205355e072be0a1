package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func newKindPlace(k kind, names ...string) *place {
	return &place{names: names, kind: k, who: &asker{}}
}

var (
	reader = kind{shared: true}
	three  = kind{slots: 3}
)

// calledOf is which of the places are called, as a word of 0s and 1s.
func calledOf(line []*place) string {
	var word []byte
	for _, p := range line {
		word = append(word, '0')
		if isCalled(p) {
			word[len(word)-1] = '1'
		}
	}
	return string(word)
}

// line is places of the same name that join in this order.
func line(q *queue, kinds ...kind) (all []*place) {
	for _, k := range kinds {
		p := newKindPlace(k, "a")
		q.join(p)
		all = append(all, p)
	}
	return all
}

// TestQueueOfKinds: who stands together, and who waits for whom.
func TestQueueOfKinds(t *testing.T) {
	writer, five := kind{}, kind{slots: 5}
	for _, test := range []struct {
		name  string
		kinds []kind
		want  string   // who is called at first
		leave []string // then the first leaves, and the next, and so on
	}{
		{"readers together, none past a writer", []kind{reader, reader, writer, reader, reader, writer}, "110000", []string{"10000", "1000", "110", "10", "1"}},
		{"a writer first", []kind{writer, reader, reader, writer, reader}, "10000", []string{"1100", "100", "10", "1"}},
		{"as many as there are slots", []kind{three, three, three, three, three}, "11100", []string{"1110", "111", "11", "1"}},
		{"another number of slots", []kind{three, five, three, five}, "1000", []string{"100", "10", "1"}},
		{"readers and slots", []kind{reader, three, reader}, "100", []string{"10", "1"}},
		{"slots and a writer", []kind{three, three, writer, three}, "1100", []string{"100", "10", "1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := newQueue()
			all := line(q, test.kinds...)
			if got := calledOf(all); got != test.want {
				t.Fatalf("called: %s, want %s", got, test.want)
			}
			for i, want := range test.leave {
				q.leave(all[0], nil)
				all = all[1:]
				if got := calledOf(all); got != want {
					t.Fatalf("called after %d left: %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// model is the wait list as it is meant: all that are there, in the order of arrival.
type model []*place

// mayHold tells by brute force whether place i has nobody in its way.
func (m model) mayHold(i int) bool {
	for _, name := range m[i].names {
		same := int16(0)
		for _, ahead := range m[:i] {
			switch {
			case !slices.Contains(ahead.names, name):
			case ahead.kind != m[i].kind || ahead.kind.alone():
				return false
			default:
				same++
			}
		}
		if slots := m[i].kind.slots; slots > 0 && same >= slots {
			return false
		}
	}
	return true
}

// deadlocks tells by trying whether the owner of the last one could never go on:
// those who wait for nothing go, until nobody can any more.
func (m model) deadlocks() bool {
	last := m[len(m)-1]
	for {
		free := slices.IndexFunc(m, func(p *place) bool { return m.goesOn(p.owner) })
		if free < 0 {
			return slices.Contains(m, last)
		}
		who := m[free].owner
		m = slices.DeleteFunc(slices.Clone(m), func(p *place) bool { return p.owner == who })
	}
}

func (m model) goesOn(who owner) bool {
	for i, p := range m {
		if p.owner == who && p.patient && !m.mayHold(i) {
			return false
		}
	}
	return true
}

// check tells whether the queue called those whom it should.
func (m model) check(t *testing.T, what string) {
	t.Helper()
	for i, p := range m {
		if want := m.mayHold(i); isCalled(p) != want {
			t.Fatalf("%s: place %d of %d (%v, %v) is called: %v, want %v", what, i, len(m), p.names, p.kind, !want, want)
		}
	}
}

// TestQueueAgainstModel: random owners ask for random names in random kinds, and
// leave. Whoever is called has nobody in his way, whoever is not has, and every
// DEADLOCK is one that no order of events could dissolve.
func TestQueueAgainstModel(t *testing.T) {
	refused := 0
	for seed := range uint64(400) {
		refused += playQueue(t, rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("seed ", seed), 150)
	}
	if refused < 500 {
		t.Errorf("%d were refused: too few to tell", refused)
	}
}

// FuzzQueue is that with any seed.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b uint64) {
		playQueue(t, rand.New(rand.NewPCG(a, b)), fmt.Sprint("seed ", a, " ", b), 300)
	})
}

func playQueue(t *testing.T, random *rand.Rand, what string, steps int) (refused int) {
	t.Helper()
	q, here := newQueue(), model{}
	for range steps {
		if n := len(here); n > 0 && random.IntN(14) < n {
			i := random.IntN(n)
			q.leave(here[i], nil)
			here = slices.Delete(here, i, i+1)
		} else if p := randomKindPlace(random); !slices.ContainsFunc(here, func(other *place) bool { return other.owner == p.owner && overlap(other, p) }) {
			want, err := p.patient && !append(here, p).mayHold(n) && append(here, p).deadlocks(), q.join(p)
			if want != errors.Is(err, errDeadlock) {
				t.Fatalf("%s: join of %v for %v, %v: %v, want refused %v", what, p.owner, p.names, p.kind, err, want)
			}
			if want {
				refused++
			} else {
				here = append(here, p)
			}
		}
		here.check(t, what)
	}
	for _, p := range here {
		q.leave(p, nil)
	}
	if len(q.lines)+len(q.parties) > 0 {
		t.Fatalf("%s: an empty queue keeps %d lines and %d parties", what, len(q.lines), len(q.parties))
	}
	return refused
}

// randomKindPlace has few names, so that they meet; a slot is one of one name.
func randomKindPlace(random *rand.Rand) *place {
	p := randomPlace(random)
	p.kind = []kind{{}, {}, reader, {slots: 2}, {slots: 2}, three}[random.IntN(6)]
	if p.kind.slots > 0 {
		p.names = p.names[:1]
	}
	return p
}
