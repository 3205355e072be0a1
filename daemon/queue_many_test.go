package daemon

import (
	"fmt"
	"testing"
	"time"
)

// crowdOf are n places that want many names in common, and one each that nobody else wants.
func crowdOf(k kind, n int) (all []*place) {
	var common []string
	for i := range 90 {
		common = append(common, fmt.Sprint("common ", i))
	}
	for i := range n {
		p := &place{patient: true, kind: k, owner: owner{name: fmt.Sprint("owner ", i)}}
		p.set(append(common, fmt.Sprint("own ", i)), k, &asker{})
		all = append(all, p)
	}
	return all
}

// TestQueueOfMany: everybody waits while the queue looks who is in whose way. What one of
// thousands costs, each of whom wants many names, does not grow with their square.
func TestQueueOfMany(t *testing.T) {
	for what, do := range map[string]func(n int) time.Duration{
		"a writer for whom readers wait leaves":           func(n int) time.Duration { return leaveReaders(n) },
		"one for whom somebody waits comes behind others": func(n int) time.Duration { return joinBehindOthers(n, kind{}) },
		"one for whose slot one of them waits":            func(n int) time.Duration { return joinBehindOthers(n, kind{slots: 2}) },
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
	q := newQueue()
	writer := crowdOf(kind{}, 1)[0]
	writer.names = writer.names[:len(writer.names)-1-len(others)]
	q.join(writer)
	for _, name := range others {
		q.join(newKindPlace(kind{}, name))
	}
	for _, p := range crowdOf(reader, n) {
		q.join(p)
	}
	began := time.Now()
	q.leave(writer, nil)
	return time.Since(began)
}

// TestQueueOfManyOfAnother: of one user's requests one at a time contends for the queue.
// Thousands of them, which end at once, would keep another user's waiting for all of them.
func TestQueueOfManyOfAnother(t *testing.T) {
	q := newQueue()
	q.mu.Lock()
	defer q.mu.Unlock()
	for range 2 {
		go q.leave(&place{names: []string{"a", "b"}, who: &asker{uid: 1}}, nil)
	}
	eventually(t, "contention of the first user", func() bool {
		free := q.gates[1].TryLock()
		if free {
			q.gates[1].Unlock()
		}
		return !free
	})
	if !q.gates[2].TryLock() {
		t.Error("another user's waits for them")
	}
}

// TestLostWaitsForNoQueue: LOST is told in time, however long thousands of others have the
// queue be locked, and those of the same user its gate.
func TestLostWaitsForNoQueue(t *testing.T) {
	d := settledDaemon(t)
	w, _ := dialWithin(t, d.newServer())
	w.say("LOCK a,b ttl=1s hold=ttl", granted(`a,b`))
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	w.want(`LOST lock=a,b .* reason=expired : .*`)
}

// joinBehindOthers is what it takes to find no deadlock for one who has one of two slots,
// or a lock, for which those wait behind whom it comes, or others.
func joinBehindOthers(n int, of kind) time.Duration {
	q := newQueue()
	waits := crowdOf(kind{}, n)
	holder, other, waiter, last := newKindPlace(of, "held"), newKindPlace(of, "held"), newKindPlace(of, "held"), crowdOf(kind{}, 1)[0]
	holder.owner, other.owner, last.owner = owner{name: "asker"}, owner{name: "another"}, owner{name: "asker"}
	waiter.owner, waiter.patient = owner{name: "waiter"}, true
	q.join(holder)
	if of.slots > 0 {
		waiter.owner = waits[0].owner // who goes on when the other one has gone
		q.join(other)
	}
	for _, p := range append(waits, waiter) {
		q.join(p)
	}
	began := time.Now()
	if err := q.join(last); err != nil {
		panic(err)
	}
	return time.Since(began)
}
