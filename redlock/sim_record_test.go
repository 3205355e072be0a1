package redlock_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// records collects the records of attempts.
type records struct {
	mu  sync.Mutex // guards all
	all []redlock.Record
}

func (n *records) add(r redlock.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, r)
}

func (n *records) last() redlock.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[len(n.all)-1]
}

func (n *records) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// BeforeAttempt gets a record of each attempt, with its token and its target, before any node
// gets the attempt. Guards attempt.send: BeforeAttempt.
func TestAttemptIsRecordedFirst(t *testing.T) {
	for what, r := range allKinds {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			f.acquire(redlock.Request{Name: "x", TTL: time.Second})
			j, recorded := f.record(), &records{}
			r.Wait = redlock.Forever
			r.BeforeAttempt = func(record redlock.Record) {
				synctest.Wait() // until everything that was sent has arrived
				recorded.add(record)
				if all := append(j.of("a"), j.of("s")...); slices.ContainsFunc(all, func(o operation) bool { return o.token == record.Token }) {
					t.Errorf("%s: recorded after it was sent", what)
				}
			}
			l := f.acquire(r)
			if recorded.count() < 2 {
				t.Errorf("%s: %d attempts were recorded, want the failed one, too", what, recorded.count())
			}
			granted, last := l.Record(), recorded.last()
			want(t, what+": token", last.Token, granted.Token)
			want(t, what+": ttl", last.TTL, granted.TTL)
			want(t, what+": names", strings.Join(last.Names, ","), l.Name())
			want(t, what+": slot", last.Slot, l.Slot())
			want(t, what+": fencing token", last.Fence, uint64(0))
			tokens := map[string]bool{}
			for _, record := range recorded.all {
				tokens[record.Token] = true
			}
			want(t, what+": tokens", len(tokens), recorded.count())
			f.release(l)
		})
	}
}

// If BeforeAttempt does not return, for example because the process is killed in it, nothing is
// sent.
func TestRecordingThatDoesNotReturn(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "y", TTL: 10 * time.Second})
		j, never := f.record(), make(chan struct{})
		r := redlock.Request{Name: "x", TTL: 10 * time.Second, BeforeAttempt: func(redlock.Record) { <-never }}
		a := f.start(t.Context(), r)
		var handed sync.WaitGroup
		handed.Go(func() {
			if _, begun, err := l.HandOver(redlock.Request{Name: "y", TTL: time.Second, BeforeAttempt: r.BeforeAttempt}); err == nil {
				begun.Abandon()
			}
		})
		time.Sleep(5 * time.Second)
		for node, commands := range j.perNode() {
			want(t, name("commands on node %d", node), commands, 0)
		}
		close(never)
		handed.Wait()
		_, err := a.wait()
		wantErr(t, "an attempt that was delayed for longer than the node timeout", err, redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		f.wantNoKeys("in the end")
	})
}

// The attempt of a hand-over is recorded before the hand-over is sent.
func TestHandOverIsRecordedFirst(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, recorded := f.acquire(oneTry), &records{}
		j := f.record()
		next := f.passOn(l, redlock.Request{Name: "x", TTL: time.Second, BeforeAttempt: func(r redlock.Record) {
			synctest.Wait()
			recorded.add(r)
			want(t, "hand-overs before the record", len(j.of("h")), 0)
		}})
		want(t, "records", recorded.count(), 1)
		want(t, "token", recorded.last().Token, next.Record().Token)
	})
}

// A lock that an earlier process was about to acquire or release is free at once: its record is
// enough. Guards Abandon.
func TestAbandon(t *testing.T) {
	for what, r := range allKinds {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			recorded := &records{}
			r.BeforeAttempt = recorded.add
			f.acquire(r)
			f.restart(100 * ms)
			want(t, what+": Abandon", f.q.Abandon(recorded.last()), nil)
			synctest.Wait()
			f.wantNoKeys(what)
			want(t, what+": free", f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Err(), nil)
		})
	}
}

// Abandon releases both tokens of a hand-over in progress.
func TestAbandonHandOver(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, recorded := f.acquire(redlock.Request{Name: "x", TTL: 25 * time.Second}), &records{}
		every(f.sims[:2], hang) // they still hold the old token
		f.handOverTo(l, redlock.Request{Name: "x", TTL: 25 * time.Second, BeforeAttempt: recorded.add})
		f.q.Close()
		every(f.sims[:2], resume)
		f.restart(100 * ms)
		f.q.Abandon(l.Record())
		f.q.Abandon(recorded.last())
		synctest.Wait()
		f.wantNoKeys("abandoned")
		f.release(f.acquire(oneTry))
	})
}

// A node that is down gets the release when it is up again. A late acquire of the earlier process
// is released, too. Guards Abandon: allNodes; the second release.
func TestAbandonIsRepeated(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		recorded := &records{}
		f.acquire(redlock.Request{Name: "x", TTL: 25 * time.Second, BeforeAttempt: recorded.add})
		f.q.Close()
		every(f.sims[:3], down)
		f.restart(0)
		f.q.Abandon(recorded.last())
		synctest.Wait()
		want(t, "keys on nodes that were down", len(f.keys()), 3)
		f.sims[4].Do("SET", "redlock:x", recorded.last().Token, "PX", "25000") // the earlier process's late acquire
		time.Sleep(time.Second)
		every(f.sims[:3], up)
		time.Sleep(time.Second)
		f.wantNoKeys("when the nodes are up again")
	})
}

// If an earlier process released a slot, this process does not treat that slot as free for
// others.
func TestAbandonLeavesSlots(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		recorded := &records{}
		r := redlock.Request{Name: "x", TTL: 3 * time.Second, Slots: 2, BeforeAttempt: recorded.add}
		f.acquire(r)
		abandoned := recorded.last()
		f.restart(100 * ms)
		want(t, "Abandon", f.q.Abandon(abandoned), nil)
		l := f.acquire(r)
		for l.Slot() != abandoned.Slot {
			f.release(l)
			l = f.acquire(r)
		}
		time.Sleep(time.Second) // the second release
		j := f.record()
		next := f.acquire(r)
		want(t, "attempts for the other slot", len(j.on(0, "s")), 1)
		f.release(next)
		f.release(l)
	})
}

// Adopt refuses a record that no process can have written. The error names the lock and the
// fault, but not the token. The other records are adopted. Guards targetOf, checkLease.
func TestBadRecords(t *testing.T) {
	for what, spoil := range map[string]func(*redlock.Record){
		"no name":                func(r *redlock.Record) { r.Names = nil },
		"zero byte":              func(r *redlock.Record) { r.Names = []string{"a\x00"} },
		"there twice":            func(r *redlock.Record) { r.Names, r.Slots = []string{"x", "x"}, 0 },
		"slots are of":           func(r *redlock.Record) { r.Shared = true },
		"slot 0 of 3":            func(r *redlock.Record) { r.Slot = 0 },
		"slot 4 of 3":            func(r *redlock.Record) { r.Slot = 4 },
		"slot 1 of 1":            func(r *redlock.Record) { r.Slots, r.Slot = 1, 1 },
		"1001 slots":             func(r *redlock.Record) { r.Slots = 1001 },
		"its token is for":       func(r *redlock.Record) { r.Token = r.Token[2:] },
		"not made by this":       func(r *redlock.Record) { r.Token = r.Token[:20] },
		"not made by this prog":  func(r *redlock.Record) { r.Token += "\n" },
		"not made by this progr": func(r *redlock.Record) { r.Token = r.Token[:2] + "!" + r.Token[3:] },
		"not made by this p":     func(r *redlock.Record) { r.Token += strings.Repeat("x", 256) },
		"fencing token 0":        func(r *redlock.Record) { r.Fence = 0 },
		"fencing token 9":        func(r *redlock.Record) { r.Fence = 9007199254740992 },
		"ttl 99ms":               func(r *redlock.Record) { r.TTL = 99 * ms },
		"ttl 31s":                func(r *redlock.Record) { r.TTL = 31 * time.Second },
		"not whole":              func(r *redlock.Record) { r.TTL++ },
		"guard 1.6s":             func(r *redlock.Record) { r.Guard = 1600 * ms },
		"guard -1s":              func(r *redlock.Record) { r.Guard = -time.Second },
		"granted at 0s":          func(r *redlock.Record) { r.Since = 0 },
		"before that boot":       func(r *redlock.Record) { r.Since += 10 * time.Second },
		"deadline 3":             func(r *redlock.Record) { r.Deadline += 30 * time.Second },
		"more than the max":      func(r *redlock.Record) { r.Deadline = 0 },
		"but its deadline":       func(r *redlock.Record) { r.End = r.Deadline - 1 },
		"to be held from":        func(r *redlock.Record) { r.End, r.Deadline = r.Since, r.Since },
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			r := redlock.Request{Name: "x", TTL: 3 * time.Second, Slots: 3}
			good, bad := f.acquire(r).Record(), f.acquire(r).Record()
			spoil(&bad)
			f.restart(100 * ms)
			a, _ := f.adoptAll(bad, good)
			wantErr(t, what, a.Errs[0], redlock.ErrRecord)
			want(t, what+": no lease", a.Leases[0], nil)
			if text := a.Errs[0].Error(); !strings.Contains(text, what) || strings.Contains(text, bad.Token) {
				t.Errorf("got %q, want %q and no token in it", text, what)
			}
			want(t, what+": the other record", a.Errs[1], nil)
			want(t, what+": the other lease", a.Leases[1].Err(), nil)
		})
	}
}

// Abandon refuses a record without a token of a lock.
func TestAbandonRefusesBadRecords(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		good := f.acquire(oneTry).Record()
		for _, r := range []redlock.Record{{}, {Names: good.Names}, {Token: good.Token}, {Names: good.Names, Token: "2 " + good.Token}} {
			wantErr(t, "Abandon", f.q.Abandon(r), redlock.ErrRecord)
		}
	})
}

// Two records with the same token are one lease.
func TestSameRecordTwice(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		record := f.acquire(kept3s).Record()
		f.restart(100 * ms)
		a, _ := f.adoptAll(record, record)
		want(t, "the first", a.Errs[0], nil)
		wantErr(t, "the second", a.Errs[1], redlock.ErrRecord)
	})
}

// A shorter ttl leaves the deadline unchanged. Such a record is valid. Guards checkLease:
// longest.
func TestRecordOfShorterTTL(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 20 * time.Second})
		want(t, "Extend", l.Extend(t.Context(), time.Second), nil)
		f.restart(100 * ms)
		next, seen := f.adopt(l.Record())
		want(t, "deadline", next.Deadline(), l.Deadline())
		f.wantHeld(next, seen)
	})
}
