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
type notes struct {
	mu  sync.Mutex // guards all
	all []redlock.Record
}

func (n *notes) note(r redlock.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, r)
}

func (n *notes) last() redlock.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[len(n.all)-1]
}

func (n *notes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// BeforeAttempt gets a record of each attempt, with its token and its target, before any node
// gets the attempt. Guards attempt.send: BeforeAttempt.
func TestNotingComesFirst(t *testing.T) {
	for what, r := range allKinds {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			f.acquire(redlock.Request{Name: "x", TTL: time.Second})
			j, noted := f.record(), &notes{}
			r.Wait = redlock.Forever
			r.BeforeAttempt = func(record redlock.Record) {
				synctest.Wait() // until everything that was sent has arrived
				noted.note(record)
				if all := append(j.of("a"), j.of("s")...); slices.ContainsFunc(all, func(o operation) bool { return o.token == record.Token }) {
					t.Errorf("%s: noted after it was sent", what)
				}
			}
			l := f.acquire(r)
			if noted.count() < 2 {
				t.Errorf("%s: %d attempts were noted, want that which failed, too", what, noted.count())
			}
			granted, last := l.Record(), noted.last()
			want(t, what+": token", last.Token, granted.Token)
			want(t, what+": ttl", last.TTL, granted.TTL)
			want(t, what+": names", strings.Join(last.Names, ","), l.Name())
			want(t, what+": place", last.Slot, l.Slot())
			want(t, what+": fencing token", last.Fence, uint64(0))
			tokens := map[string]bool{}
			for _, record := range noted.all {
				tokens[record.Token] = true
			}
			want(t, what+": tokens", len(tokens), noted.count())
			f.release(l)
		})
	}
}

// If BeforeAttempt does not return, for example because the process is killed in it, nothing is
// sent.
func TestNotingThatDoesNotReturn(t *testing.T) {
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
		wantErr(t, "an attempt that was held up for longer than a node may take", err, redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		f.wantNoKeys("in the end")
	})
}

// The attempt of a hand-over is recorded before the hand-over is sent.
func TestNotingOfHandOver(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, noted := f.acquire(oneTry), &notes{}
		j := f.record()
		next := f.passOn(l, redlock.Request{Name: "x", TTL: time.Second, BeforeAttempt: func(r redlock.Record) {
			synctest.Wait()
			noted.note(r)
			want(t, "commands before it was noted", len(j.of("h")), 0)
		}})
		want(t, "notes", noted.count(), 1)
		want(t, "token", noted.last().Token, next.Record().Token)
	})
}

// A lock that an earlier process was about to acquire or release is free at once: its record is
// enough. Guards Abandon.
func TestAbandon(t *testing.T) {
	for what, r := range allKinds {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			noted := &notes{}
			r.BeforeAttempt = noted.note
			f.acquire(r)
			f.restart(100 * ms)
			want(t, what+": Abandon", f.q.Abandon(noted.last()), nil)
			synctest.Wait()
			f.wantNoKeys(what)
			want(t, what+": free", f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Err(), nil)
		})
	}
}

// Abandon releases both tokens of a hand-over in progress.
func TestAbandonHandOver(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, noted := f.acquire(redlock.Request{Name: "x", TTL: 25 * time.Second}), &notes{}
		every(f.sims[:2], hang) // they still hold the old token
		f.handOverTo(l, redlock.Request{Name: "x", TTL: 25 * time.Second, BeforeAttempt: noted.note})
		f.q.Close()
		every(f.sims[:2], resume)
		f.restart(100 * ms)
		f.q.Abandon(l.Record())
		f.q.Abandon(noted.last())
		synctest.Wait()
		f.wantNoKeys("abandoned")
		f.release(f.acquire(oneTry))
	})
}

// A node that is down gets the release when it is up again. A late acquire of the earlier process
// is released, too. Guards Abandon: anywhere; the second release.
func TestAbandonIsRepeated(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		noted := &notes{}
		f.acquire(redlock.Request{Name: "x", TTL: 25 * time.Second, BeforeAttempt: noted.note})
		f.q.Close()
		every(f.sims[:3], down)
		f.restart(0)
		f.q.Abandon(noted.last())
		synctest.Wait()
		want(t, "keys on nodes that were down", len(f.keys()), 3)
		f.sims[4].Do("SET", "redlock:x", noted.last().Token, "PX", "25000") // the earlier process's late acquire
		time.Sleep(time.Second)
		every(f.sims[:3], up)
		time.Sleep(time.Second)
		f.wantNoKeys("when they are back")
	})
}

// If an earlier process released a slot, this process does not treat that slot as free for
// others.
func TestAbandonLeavesPlaces(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		noted := &notes{}
		r := redlock.Request{Name: "x", TTL: 3 * time.Second, Slots: 2, BeforeAttempt: noted.note}
		f.acquire(r)
		abandoned := noted.last()
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
		want(t, "attempts for the other place", len(j.on(0, "s")), 1)
		f.release(next)
		f.release(l)
	})
}

// Adopt refuses a record that no process can have written. The error names the lock and the
// fault, but not the token. The other records are adopted. Guards targetOf, checkLease.
func TestBadRecords(t *testing.T) {
	for what, spoil := range map[string]func(*redlock.Record){
		"no name":            func(r *redlock.Record) { r.Names = nil },
		"zero byte":          func(r *redlock.Record) { r.Names = []string{"a\x00"} },
		"there twice":        func(r *redlock.Record) { r.Names, r.Slots = []string{"x", "x"}, 0 },
		"slots are of":       func(r *redlock.Record) { r.Shared = true },
		"place 0 of 3":       func(r *redlock.Record) { r.Slot = 0 },
		"place 4 of 3":       func(r *redlock.Record) { r.Slot = 4 },
		"place 1 of 1":       func(r *redlock.Record) { r.Slots, r.Slot = 1, 1 },
		"1001 slots":         func(r *redlock.Record) { r.Slots = 1001 },
		"its token is of":    func(r *redlock.Record) { r.Token = r.Token[2:] },
		"none of this":       func(r *redlock.Record) { r.Token = r.Token[:20] },
		"none of this prog":  func(r *redlock.Record) { r.Token += "\n" },
		"none of this progr": func(r *redlock.Record) { r.Token = r.Token[:2] + "!" + r.Token[3:] },
		"none of this p":     func(r *redlock.Record) { r.Token += strings.Repeat("x", 256) },
		"fencing token 0":    func(r *redlock.Record) { r.Fence = 0 },
		"fencing token 9":    func(r *redlock.Record) { r.Fence = 9007199254740992 },
		"ttl 99ms":           func(r *redlock.Record) { r.TTL = 99 * ms },
		"ttl 31s":            func(r *redlock.Record) { r.TTL = 31 * time.Second },
		"not whole":          func(r *redlock.Record) { r.TTL++ },
		"guard 1.6s":         func(r *redlock.Record) { r.Guard = 1600 * ms },
		"guard -1s":          func(r *redlock.Record) { r.Guard = -time.Second },
		"granted at 0s":      func(r *redlock.Record) { r.Since = 0 },
		"of another boot":    func(r *redlock.Record) { r.Since += 10 * time.Second },
		"deadline 3":         func(r *redlock.Record) { r.Deadline += 30 * time.Second },
		"more than the max":  func(r *redlock.Record) { r.Deadline = 0 },
		"at most, and":       func(r *redlock.Record) { r.End = r.Deadline - 1 },
		"to be held from":    func(r *redlock.Record) { r.End, r.Deadline = r.Since, r.Since },
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
			want(t, what+": the other one", a.Errs[1], nil)
			want(t, what+": the other lease", a.Leases[1].Err(), nil)
		})
	}
}

// Abandon refuses a record without a token of a lock.
func TestAbandonOfNothing(t *testing.T) {
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
