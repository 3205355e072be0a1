package locktable

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue never returns a removed waiter, and at most about half of its entries are removed ones.
func TestNameQueue(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var queue nameQueue
		var in []*Waiter
		for number := range uint64(300) {
			if random.IntN(300) > int(number) || len(in) == 0 {
				p := &Waiter{number: number, Kind: Kind{Shared: random.IntN(4) > 0}}
				queue.append(p)
				in = append(in, p)
			} else {
				i := random.IntN(len(in)) * random.IntN(2) // the first one in half of the cases
				queue.remove(in[i])
				queue.remove(in[i]) // a second remove has no effect
				in = slices.Delete(in, i, i+1)
			}
			if !queue.is(in) {
				t.Fatalf("seed %d: the queue has %d waiters or is inconsistent, want %d waiters: %+v", seed, len(slices.Collect(queue.all())), len(in), queue)
			}
		}
		for _, p := range in {
			queue.remove(p)
		}
		if len(queue.entries) > 0 {
			t.Fatalf("seed %d: after all were removed, there are %d entries", seed, len(queue.entries))
		}
	}
}

// is reports whether the queue has exactly the waiters in, and keeps its invariants.
func (l *nameQueue) is(in []*Waiter) bool {
	left := 0
	for _, s := range l.entries {
		if s.waiter == nil {
			left++
		}
	}
	firm := slices.IndexFunc(in, func(p *Waiter) bool { return !p.Kind.Shared })
	backward := slices.Collect(l.backward())
	slices.Reverse(backward)
	switch {
	case !slices.Equal(slices.Collect(l.all()), in), !slices.Equal(backward, in):
	case left != l.removed, 2*left > len(l.entries)+1:
	case firm < 0 && l.firstUnshared != nil, firm >= 0 && l.firstUnshared != in[firm]:
	default:
		return len(in) == 0 || l.entries[0].waiter == in[0] && l.entries[len(l.entries)-1].waiter == in[len(in)-1]
	}
	return false
}

// next returns the first waiter from an index on, if it is before another given waiter.
func TestNameQueueNext(t *testing.T) {
	var queue nameQueue
	var all [5]*Waiter
	for i := range all {
		all[i] = &Waiter{number: uint64(i)}
		queue.append(all[i])
	}
	queue.remove(all[1])
	for _, test := range []struct {
		from, before int
		want         *Waiter
	}{{0, 4, all[0]}, {1, 4, all[2]}, {1, 3, all[2]}, {1, 2, nil}, {3, 3, nil}, {5, 4, nil}} {
		if i, got := queue.next(test.from, all[test.before]); got != test.want || got != nil && uint64(i) != got.number {
			t.Errorf("next from %d, before %d: got %v at %d, want %v", test.from, test.before, got, i, test.want)
		}
	}
	if _, got := (*nameQueue)(nil).next(0, all[4]); got != nil {
		t.Errorf("a nil queue has %v", got)
	}
}
