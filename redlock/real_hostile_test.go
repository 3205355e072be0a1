package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// One node of five is hostile or broken, in a different way per row (hostile_rows_test.go).
// Clients still acquire and release locks as before. The node counts as failed and its status
// says why, and it is not dialled without limit. Neither memory nor goroutines grow without bound.
func TestRealHostileNode(t *testing.T) {
	s := startServers(t, 5)
	s.eventually("all nodes call waiters", func() bool {
		return !slices.ContainsFunc(s.q.Status().Nodes, func(n redlock.NodeStatus) bool { return !n.Calls })
	})
	m := measure()
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 16) // some of them mostly wait
	for i, row := range hostileRows {
		atOnce <- struct{}{}
		all.Go(func() {
			defer func() { <-atOnce }()
			newHostile(t, s, row.answer).endure(name("%s (%d)", row.name, i), row.reason)
		})
	}
	all.Wait()
	m.wantBounded(t, name("%d hostile nodes, 16 at once", len(hostileRows)))
}

// hostile is a Quorum of four good nodes and a hostile one.
type hostile struct {
	t        *testing.T
	impostor *redlocktest.Impostor
	q        *redlock.Quorum
}

func newHostile(t *testing.T, s *servers, answer redlocktest.Answer) *hostile {
	h := &hostile{t: t, impostor: redlocktest.StartImpostor(t, s.all[4], answer)}
	o := redlock.Options{Prefix: "redlock:", NodeTimeout: shortTimeout, MaxTTL: realTTL, NoQuarantine: true}
	for _, server := range s.all[:4] {
		o.Nodes = append(o.Nodes, server.Node())
	}
	o.Nodes = append(o.Nodes, redlock.RedisNode(redlock.NodeOptions{Name: "e", Address: h.impostor.Addr()}))
	var err error
	if h.q, err = redlock.New(o); err != nil {
		t.Error(err)
	}
	return h
}

func (h *hostile) close() {
	h.q.Close()
	h.impostor.Close()
}

// endure acquires and releases locks until the node's status says why it does not count, and then
// five times more.
func (h *hostile) endure(row, reason string) {
	defer h.close()
	start := time.Now()
	wanted := regexp.MustCompile(reason)
	said := map[string]bool{}
	poll := time.NewTicker(10 * ms) // without a pause, many hosts would occupy the processors
	defer poll.Stop()
	for n, after, end := 0, 0, time.Now().Add(hostilePatience); after < 5; n++ {
		<-poll.C
		if err := h.pair(name("%s %d", row, n)); err != nil {
			h.t.Errorf("%s: %v", row, err)
			return
		}
		why := fmt.Sprint(h.q.Status().Nodes[4].Reason)
		said[why] = true
		if ready := h.q.Status().Ready >= 4; after > 0 || ready && (reason != "" && wanted.MatchString(why) || reason == "" && h.impostor.Dials() > 3) {
			after++
		}
		if time.Now().After(end) {
			h.t.Errorf("%s: reasons of the node: %q, want %q", row, slices.Sorted(maps.Keys(said)), reason)
			return
		}
	}
	if dials, most := h.impostor.Dials(), 20+int(12*time.Since(start).Seconds()); dials > most {
		h.t.Errorf("%s: dialled %d times within %v, want at most %d", row, dials, time.Since(start), most)
	}
}

// pair acquires a lock and releases it. If an attempt or the release has no quorum, at least two good
// nodes were too slow (on a busy machine): the hostile one alone changes nothing. Two of them may also
// have granted the lock only after the hostile one had, and after the fencing token was chosen.
func (h *hostile) pair(lock string) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), hostilePatience)
	defer cancel()
	l, err := h.q.Acquire(ctx, redlock.Request{Name: lock, TTL: realTTL, Wait: hostilePatience, Failed: h.checkFailure})
	if err != nil {
		return err
	}
	if err = l.Release(ctx); errors.Is(err, redlock.ErrNoQuorum) {
		h.checkFailure(err)
		return nil
	}
	return err
}

func (h *hostile) checkFailure(err error) {
	e, isQuorum := errors.AsType[*redlock.NoQuorumError](err)
	if !isQuorum {
		return
	}
	good := 0
	for _, node := range e.Failed {
		switch node.Node {
		case "e":
		case "this attempt":
			late := 0
			fmt.Sscan(node.Err.Error(), &late) // "2 nodes granted the lock too late, or …"
			good += late
		default:
			good++
		}
	}
	if good < 2 {
		h.t.Errorf("no quorum, although at most one of four good nodes did not answer in time: %v", err)
	}
}

// hostilePatience bounds what a hostile node could hinder: it is far more than any of that takes on a
// busy machine.
const hostilePatience = 2 * time.Minute

// measurement records the memory and goroutines of this process.
type measurement struct {
	heap, most uint64
	routines   int
	stop       chan struct{}
	stopped    chan struct{}
}

func measure() *measurement {
	runtime.GC()
	m := &measurement{heap: heapBytes(), routines: runtime.NumGoroutine(), stop: make(chan struct{}), stopped: make(chan struct{})}
	go m.watch()
	return m
}

// watch samples the heap until stop is closed.
func (m *measurement) watch() {
	defer close(m.stopped)
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.most = max(m.most, heapBytes())
		case <-m.stop:
			return
		}
	}
}

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

const (
	mostHeap  = 640 << 20 // 16 hostile nodes at the same time, at most 40 MB each
	heapAfter = 32 << 20
)

// wantBounded checks the peak of the heap, and what is still in use after the test.
func (m *measurement) wantBounded(t *testing.T, what string) {
	t.Helper()
	close(m.stop)
	<-m.stopped
	runtime.GC()
	after := heapBytes()
	t.Logf("measured: %s: heap %d MB before, %d MB at most, %d MB after", what, m.heap>>20, m.most>>20, after>>20)
	if m.most > m.heap+mostHeap || after > m.heap+heapAfter {
		t.Errorf("heap %d MB before, %d MB at most, %d MB after: want at most %d MB and then %d MB more", m.heap>>20, m.most>>20, after>>20, mostHeap>>20, heapAfter>>20)
	}
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for giveUp := time.Now().Add(patience); runtime.NumGoroutine() > m.routines+2; <-tick.C {
		if time.Now().After(giveUp) {
			t.Fatalf("%d goroutines before, %d after, want at most 2 more", m.routines, runtime.NumGoroutine())
		}
	}
}
