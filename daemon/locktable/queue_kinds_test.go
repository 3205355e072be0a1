package locktable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func newWaiterOf(k Kind, names ...string) *Waiter {
	return &Waiter{Names: names, Kind: k, Requester: &Requester{}, backing: testLease{}}
}

var (
	reader = Kind{Shared: true}
	three  = Kind{Slots: 3}
)

// readyOf returns a digit for each waiter: 1 if it is ready, otherwise 0.
func readyOf(waiters []*Waiter) string {
	var word []byte
	for _, p := range waiters {
		word = append(word, '0')
		if isReady(p) {
			word[len(word)-1] = '1'
		}
	}
	return string(word)
}

// joinAll joins waiters of the same name in this order.
func joinAll(q *Queue, kinds ...Kind) (all []*Waiter) {
	for _, k := range kinds {
		p := newWaiterOf(k, "a")
		q.Join(p)
		all = append(all, p)
	}
	return all
}

// model is a simple wait queue: all waiters in the order of arrival.
type model []*Waiter

// mayHold reports, by brute force, whether nothing blocks waiter i.
func (m model) mayHold(i int) bool {
	for _, name := range m[i].Names {
		same := int16(0)
		for _, ahead := range m[:i] {
			switch {
			case !slices.Contains(ahead.Names, name):
			case ahead.Kind != m[i].Kind || ahead.Kind.Exclusive():
				return false
			default:
				same++
			}
		}
		if slots := m[i].Kind.Slots; slots > 0 && same >= slots {
			return false
		}
	}
	return true
}

// check fails unless exactly the waiters that nothing blocks are ready.
func (m model) check(t *testing.T, what string) {
	t.Helper()
	for i, p := range m {
		if want := m.mayHold(i); isReady(p) != want {
			t.Fatalf("%s: waiter %d of %d (%v, %v) is ready: %v, want %v", what, i, len(m), p.Names, p.Kind, !want, want)
		}
	}
}

// Random owners join for random names in random kinds, and leave. A waiter is ready if and only if
// nothing blocks it in the model. Join refuses a waiter if and only if cycleModel does.
func TestQueueAgainstModel(t *testing.T) {
	refused := 0
	for seed := range uint64(400) {
		refused += runRandomSteps(t, rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("seed ", seed), 150)
	}
	if refused < 500 {
		t.Errorf("%d were refused, want more to test it", refused)
	}
}

// FuzzQueue is TestQueueAgainstModel with any seed.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b uint64) {
		runRandomSteps(t, rand.New(rand.NewPCG(a, b)), fmt.Sprint("seed ", a, " ", b), 300)
	})
}

func runRandomSteps(t *testing.T, random *rand.Rand, what string, steps int) (refused int) {
	t.Helper()
	q, here := New(), model{}
	for range steps {
		if n := len(here); n > 0 && random.IntN(14) < n {
			i := random.IntN(n)
			q.Leave(here[i], nil)
			here = slices.Delete(here, i, i+1)
		} else if p := randomWaiterOf(random); !slices.ContainsFunc(here, func(other *Waiter) bool { return other.Owner == p.Owner && Overlap(other, p) }) {
			want, err := cycleModel(append(here, p)).refuses(), q.Join(p)
			if want != errors.Is(err, ErrDeadlock) {
				t.Fatalf("%s: join of %v for %v, %v: %v, want refused %v", what, p.Owner, p.Names, p.Kind, err, want)
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
		q.Leave(p, nil)
	}
	if len(q.names)+len(q.participants) > 0 {
		t.Fatalf("%s: an empty queue keeps %d names and %d participants", what, len(q.names), len(q.participants))
	}
	return refused
}

// randomWaiterOf returns a waiter of a random kind. A waiter that wants a slot has one name.
func randomWaiterOf(random *rand.Rand) *Waiter {
	p := randomWaiter(random)
	p.Kind = []Kind{{}, {}, reader, {Slots: 2}, {Slots: 2}, three}[random.IntN(6)]
	if p.Kind.Slots > 0 {
		p.Names = p.Names[:1]
	}
	return p
}

// When a holder becomes a reader, the readers directly behind it become ready. No reader overtakes a
// writer that waits.
func TestQueueDowngrade(t *testing.T) {
	writer := Kind{}
	for _, test := range []struct {
		kinds []Kind
		want  string
	}{
		{[]Kind{writer, reader, reader}, "111"},
		{[]Kind{writer, reader, writer, reader}, "1100"},
		{[]Kind{writer, writer, reader}, "100"},
		{[]Kind{writer, three}, "10"},
	} {
		q := New()
		all := joinAll(q, test.kinds...)
		q.Granted(all[0])
		q.Downgrade(all[0])
		if got := readyOf(all); got != test.want {
			t.Errorf("%v: ready: %s, want %s", test.kinds, got, test.want)
		}
		if late := newWaiterOf(reader, "a"); q.Join(late) == nil && isReady(late) != (test.want == "111") {
			t.Errorf("%v: a late reader is ready: %v", test.kinds, isReady(late))
		}
		for _, w := range all {
			q.Leave(w, nil)
		}
	}
}
