package locktable

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manyWaiters returns n waiters that want the same 90 names, and each one name of its own.
func manyWaiters(k Kind, n int) (all []*Waiter) {
	var common []string
	for i := range 90 {
		common = append(common, fmt.Sprint("common ", i))
	}
	for i := range n {
		p := &Waiter{Patient: true, Kind: k, Owner: Owner{Name: fmt.Sprint("owner ", i)}}
		p.init(append(common, fmt.Sprint("own ", i)), k, true, &Requester{}, testLease{})
		all = append(all, p)
	}
	return all
}

// All clients wait while the queue looks for blockers. So with thousands of waiters, each for many
// names, the time of one operation must not grow with the square of their number.
func TestQueueTimeIsNotQuadratic(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, n int) time.Duration{
		"a writer leaves that readers wait for": func(t *testing.T, n int) time.Duration { return timeLeave(t, n) },
		"a holder of a lock joins":              func(t *testing.T, n int) time.Duration { return timeJoin(t, n, Kind{}) },
		"a holder of a slot joins":              func(t *testing.T, n int) time.Duration { return timeJoin(t, n, Kind{Slots: 2}) },
	} {
		t.Run(what, func(t *testing.T) {
			// 8 times as many waiters: 64 times the time if it were quadratic
			few, many, ok := within(40, func() time.Duration { return do(t, 150) }, func() time.Duration { return do(t, 1200) })
			if t.Logf("with 150 others %v, with 1200 %v", few, many); !ok {
				t.Errorf("it takes %v with 150 others, and %v with 1200", few, many)
			}
		})
	}
}

// Leave visits each waiter once, not once in each of its queues.
func TestLeaveVisitsEachWaiterOnce(t *testing.T) {
	free, kept, ok := within(30, func() time.Duration { return timeLeave(t, 300) }, func() time.Duration { return timeLeave(t, 300, "common 89") })
	if t.Logf("readers that become ready %v, others %v", free, kept); !ok {
		t.Errorf("it takes %v if the readers become ready, and %v if another writer blocks them", free, kept)
	}
}

// within reports whether much takes at most so many times the processor time of little, by the
// shortest of three runs of both.
func within(times int, little, much func() time.Duration) (least, most time.Duration, ok bool) {
	least, most = little(), much()
	for range 2 {
		least, most = min(least, little()), min(most, much())
	}
	return least, most, most <= time.Duration(times)*least
}

// processorTime returns how long a function runs, without the time in which other threads and
// programs have the processor.
func processorTime(t *testing.T, do func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC() // no collection is under way, which would take time of this thread
	begin := threadTime(t)
	do()
	return threadTime(t) - begin
}

// threadTime returns the processor time that this thread has had.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// timeLeave returns the processor time of a Leave by a writer that n readers wait for. The others are
// held by another writer, which still blocks the readers.
func timeLeave(t *testing.T, n int, others ...string) time.Duration {
	t.Helper()
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
	return processorTime(t, func() { q.Leave(writer, nil) })
}

// timeJoin returns the processor time of a Join that searches for a deadlock and finds none. The
// owner that joins already holds a lock, or one of two slots, that waiters before it wait for.
func timeJoin(t *testing.T, n int, of Kind) time.Duration {
	t.Helper()
	q := New()
	waits := manyWaiters(Kind{}, n)
	holder, other, waiter, last := newWaiterOf(of, "held"), newWaiterOf(of, "held"), newWaiterOf(of, "held"), manyWaiters(Kind{}, 1)[0]
	holder.Owner, other.Owner, last.Owner = Owner{Name: "asker"}, Owner{Name: "another"}, Owner{Name: "asker"}
	waiter.Owner, waiter.Patient = Owner{Name: "waiter"}, true
	q.Join(holder)
	if of.Slots > 0 {
		waiter.Owner = waits[0].Owner // it gets a slot when other leaves
		q.Join(other)
	}
	for _, p := range append(waits, waiter) {
		q.Join(p)
	}
	return processorTime(t, func() {
		if err := q.Join(last); err != nil {
			t.Error(err)
		}
	})
}
