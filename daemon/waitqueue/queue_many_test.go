package waitqueue

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// manyWaiters are n places that want many names in common, and one each that nobody else wants.
func manyWaiters(k Kind, n int) (all []*Waiter) {
	var common []string
	for i := range 90 {
		common = append(common, fmt.Sprint("common ", i))
	}
	for i := range n {
		p := &Waiter{Patient: true, Kind: k, Owner: Owner{Name: fmt.Sprint("owner ", i)}}
		p.Init(append(common, fmt.Sprint("own ", i)), k, true, &Requester{}, nil)
		all = append(all, p)
	}
	return all
}

// TestQueueOfMany: everybody waits while the queue looks who is in whose way. What one of
// thousands costs, each of whom wants many names, does not grow with their square.
func TestQueueOfMany(t *testing.T) {
	for what, do := range map[string]func(n int) time.Duration{
		"a writer for whom readers wait leaves":           func(n int) time.Duration { return leaveReaders(n) },
		"one for whom somebody waits comes behind others": func(n int) time.Duration { return joinBehindOthers(n, Kind{}) },
		"one for whose slot one of them waits":            func(n int) time.Duration { return joinBehindOthers(n, Kind{Slots: 2}) },
	} {
		t.Run(what, func(t *testing.T) {
			// 8 times as much to look at, whose square is 64 times as much
			few, many, ok := within(40, func() time.Duration { return do(300) }, func() time.Duration { return do(2400) })
			if t.Logf("with 300 others %v, with 2400 %v", few, many); !ok {
				t.Errorf("with 300 others it takes %v, and %v with 2400", few, many)
			}
		})
	}
}

// TestQueueOfManyWhoStandInManyLines: each of them is looked at once, and not in each line.
func TestQueueOfManyWhoStandInManyLines(t *testing.T) {
	free, kept, ok := within(30, func() time.Duration { return leaveReaders(300) }, func() time.Duration { return leaveReaders(300, "common 89") })
	if t.Logf("readers who can go on %v, others %v", free, kept); !ok {
		t.Errorf("it takes %v where the readers can go on, and %v where another one keeps them waiting", free, kept)
	}
}

// within tells whether much takes at most so many times as long as little, of each the
// shortest: a busy machine makes what takes longer be held up more often, so it is tried
// until that is so.
func within(times int, little, much func() time.Duration) (least, most time.Duration, ok bool) {
	least, most = little(), much()
	for range 20 {
		least, most = min(least, little()), min(most, much())
		if most <= time.Duration(times)*least {
			return least, most, true
		}
	}
	return least, most, false
}

// leaveReaders is what it takes that a writer leaves for whom readers wait. Another one
// may have one of the names.
func leaveReaders(n int, others ...string) time.Duration {
	q := New()
	writer := manyWaiters(Kind{}, 1)[0]
	writer.Names = writer.Names[:len(writer.Names)-1-len(others)]
	q.Join(writer)
	for _, name := range others {
		q.Join(newWaiterOf(Kind{}, name))
	}
	for _, p := range manyWaiters(reader, n) {
		q.Join(p)
	}
	began := time.Now()
	q.Leave(writer, nil)
	return time.Since(began)
}

// TestQueueOfManyOfAnother: of one user's requests one at a time contends for the queue.
// Thousands of them, which end at once, would keep another user's waiting for all of them.
func TestQueueOfManyOfAnother(t *testing.T) {
	q := New()
	q.mu.Lock()
	defer q.mu.Unlock()
	for range 2 {
		go q.Leave(&Waiter{Names: []string{"a", "b"}, Requester: &Requester{UID: 1}}, nil)
	}
	for q.userGates[1].TryLock() { // until the first user contends
		q.userGates[1].Unlock()
		runtime.Gosched()
	}
	if !q.userGates[2].TryLock() {
		t.Error("another user's waits for them")
	}
}

// joinBehindOthers is what it takes to find no deadlock for one who has one of two slots,
// or a lock, for which those wait behind whom it comes, or others.
func joinBehindOthers(n int, of Kind) time.Duration {
	q := New()
	waits := manyWaiters(Kind{}, n)
	holder, other, waiter, last := newWaiterOf(of, "held"), newWaiterOf(of, "held"), newWaiterOf(of, "held"), manyWaiters(Kind{}, 1)[0]
	holder.Owner, other.Owner, last.Owner = Owner{Name: "asker"}, Owner{Name: "another"}, Owner{Name: "asker"}
	waiter.Owner, waiter.Patient = Owner{Name: "waiter"}, true
	q.Join(holder)
	if of.Slots > 0 {
		waiter.Owner = waits[0].Owner // who goes on when the other one has gone
		q.Join(other)
	}
	for _, p := range append(waits, waiter) {
		q.Join(p)
	}
	began := time.Now()
	if err := q.Join(last); err != nil {
		panic(err)
	}
	return time.Since(began)
}
