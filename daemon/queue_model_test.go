package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// places are those of a queue, in the order in which they joined.
type places []*place

func (all places) waits(i int) bool {
	return all[i].patient && slices.ContainsFunc(all[:i], func(ahead *place) bool { return conflicts(ahead, all[i]) })
}

// refuses tells by brute force whether the last one may not join: whether its
// owner is among those that it waits for, that they wait for, and so on.
func (all places) refuses() bool {
	last := len(all) - 1
	p, reached := all[last], map[owner]bool{}
	reach := func(i int) (more bool) {
		for _, ahead := range all[:i] {
			if conflicts(ahead, all[i]) && !(ahead.owner == p.owner && conflicts(ahead, p)) {
				more = more || !reached[ahead.owner]
				reached[ahead.owner] = true
			}
		}
		return more
	}
	if !all.waits(last) {
		return false
	}
	for more := reach(last); more; {
		more = false
		for i, w := range all[:last] {
			more = reached[w.owner] && all.waits(i) && reach(i) || more
		}
	}
	return reached[p.owner]
}

func conflicts(a, b *place) bool { return (a.kind != b.kind || a.kind.alone()) && overlap(a, b) }

// TestQueueRefusesCyclesAndNothingElse: random owners ask for random names, and
// leave; each answer is that of brute force.
func TestQueueRefusesCyclesAndNothingElse(t *testing.T) {
	refused := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, here := newQueue(), places{}
		for step := range 200 {
			if n := len(here); n > 0 && random.IntN(12) < n {
				i := random.IntN(n)
				q.leave(here[i], nil)
				here = slices.Delete(here, i, i+1)
				continue
			}
			p := randomPlace(random)
			want, err := append(here, p).refuses(), q.join(p)
			if want != errors.Is(err, errDeadlock) {
				t.Fatalf("seed %d, step %d: join: %v, want refused %v", seed, step, err, want)
			}
			if want {
				refused++
				continue
			}
			here = append(here, p)
		}
		for _, p := range here {
			q.leave(p, nil)
		}
		if len(q.lines)+len(q.parties) > 0 {
			t.Fatalf("seed %d: an empty queue keeps %d lines and %d parties", seed, len(q.lines), len(q.parties))
		}
	}
	if refused < 1000 {
		t.Errorf("%d were refused, of 60,000: too few to tell", refused)
	}
}

func randomPlace(random *rand.Rand) *place {
	names := []string{"a", "b", "c", "d", "e", "f"}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	who := &asker{owner: fmt.Sprint(random.IntN(5))}
	return &place{
		names:   names[:1+random.IntN(4)/3],
		who:     who,
		owner:   owner{name: who.owner},
		patient: random.IntN(5) > 0,
	}
}

// BenchmarkQueue is what a lock costs in the queue.
func BenchmarkQueue(b *testing.B) {
	newPlace := func(i int, name string) *place {
		p := &place{patient: true, owner: owner{name: fmt.Sprint("owner ", i)}}
		p.set([]string{name}, kind{}, &asker{})
		return p
	}
	b.Run("nobody waits", func(b *testing.B) {
		q, p := newQueue(), newPlace(0, "a")
		b.ReportAllocs()
		for b.Loop() {
			q.join(p)
			q.leave(p, nil)
		}
	})
	b.Run("one of 8000 in 91 lines each leaves, and comes again", func(b *testing.B) {
		q, all := newQueue(), crowdOf(kind{}, 8000)
		for _, p := range all {
			q.join(p)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			p := all[random.IntN(len(all))]
			q.leave(p, nil)
			q.join(p)
		}
	})
	b.Run("the last of 1000 who all hold what is wanted", func(b *testing.B) {
		q := newQueue()
		for i := range 1001 {
			name := fmt.Sprint("lock ", i)
			q.join(newPlace(i, name))
			q.join(newPlace(-1-i, name))
			if i < 1000 {
				q.join(newPlace(i, "a"))
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			p := newPlace(1000, "a")
			if err := q.join(p); err != nil {
				b.Fatal(err)
			}
			q.leave(p, nil)
		}
	})
}
