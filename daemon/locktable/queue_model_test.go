package locktable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// cycleModel has the waiters of a queue in the order of arrival.
type cycleModel []*Waiter

func (all cycleModel) waits(i int) bool {
	return all[i].Patient && slices.ContainsFunc(all[:i], func(ahead *Waiter) bool { return conflicts(ahead, all[i]) })
}

// refuses reports, by brute force, whether the last waiter must not join: its owner is among the
// owners that it waits for, directly or through others.
func (all cycleModel) refuses() bool {
	last := len(all) - 1
	p, reached := all[last], map[Owner]bool{}
	reach := func(i int) (more bool) {
		for _, ahead := range all[:i] {
			if conflicts(ahead, all[i]) && !(ahead.Owner == p.Owner && conflicts(ahead, p)) {
				more = more || !reached[ahead.Owner]
				reached[ahead.Owner] = true
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
			more = reached[w.Owner] && all.waits(i) && reach(i) || more
		}
	}
	return reached[p.Owner]
}

func conflicts(a, b *Waiter) bool { return (a.Kind != b.Kind || a.Kind.Exclusive()) && Overlap(a, b) }

// Random owners join for random names, and leave. Join refuses exactly the waiters that the model
// refuses.
func TestQueueRefusesCyclesAndNothingElse(t *testing.T) {
	refused := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, here := New(), cycleModel{}
		for step := range 200 {
			if n := len(here); n > 0 && random.IntN(12) < n {
				i := random.IntN(n)
				q.Leave(here[i], nil)
				here = slices.Delete(here, i, i+1)
				continue
			}
			p := randomWaiter(random)
			want, err := append(here, p).refuses(), q.Join(p)
			if want != errors.Is(err, ErrDeadlock) {
				t.Fatalf("seed %d, step %d: join: %v, want refused %v", seed, step, err, want)
			}
			if want {
				refused++
				continue
			}
			here = append(here, p)
		}
		for _, p := range here {
			q.Leave(p, nil)
		}
		if len(q.names)+len(q.participants) > 0 {
			t.Fatalf("seed %d: an empty queue keeps %d names and %d participants", seed, len(q.names), len(q.participants))
		}
	}
	if refused < 1000 {
		t.Errorf("%d of 60,000 were refused, want more to test it", refused)
	}
}

func randomWaiter(random *rand.Rand) *Waiter {
	names := []string{"a", "b", "c", "d", "e", "f"}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	requester := &Requester{Owner: fmt.Sprint(random.IntN(5))}
	return &Waiter{
		Names:     names[:1+random.IntN(4)/3],
		Requester: requester,
		Owner:     Owner{Name: requester.Owner},
		Patient:   random.IntN(5) > 0,
	}
}

// BenchmarkQueue measures a Join and a Leave.
func BenchmarkQueue(b *testing.B) {
	newWaiter := func(i int, name string) *Waiter {
		p := &Waiter{Patient: true, Owner: Owner{Name: fmt.Sprint("owner ", i)}}
		p.init([]string{name}, Kind{}, true, &Requester{}, testLease{})
		return p
	}
	b.Run("an uncontended lock", func(b *testing.B) {
		q, p := New(), newWaiter(0, "a")
		b.ReportAllocs()
		for b.Loop() {
			q.Join(p)
			q.Leave(p, nil)
		}
	})
	b.Run("one of 8000 waiters in 91 queues each leaves and joins", func(b *testing.B) {
		q, all := New(), manyWaiters(Kind{}, 8000)
		for _, p := range all {
			q.Join(p)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			p := all[random.IntN(len(all))]
			q.Leave(p, nil)
			q.Join(p)
		}
	})
	b.Run("the last of 1000 owners that hold locks others wait for", func(b *testing.B) {
		q := New()
		for i := range 1001 {
			name := fmt.Sprint("lock ", i)
			q.Join(newWaiter(i, name))
			q.Join(newWaiter(-1-i, name))
			if i < 1000 {
				q.Join(newWaiter(i, "a"))
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			p := newWaiter(1000, "a")
			if err := q.Join(p); err != nil {
				b.Fatal(err)
			}
			q.Leave(p, nil)
		}
	})
}
