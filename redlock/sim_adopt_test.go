package redlock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// restart ends the process as kill -9 does, and starts another one on the same nodes after the
// given time.
func (f *fleet) restart(after time.Duration, change ...func(*redlock.Options)) {
	f.Helper()
	f.q.Close()
	time.Sleep(after)
	f.open(change...)
	f.Cleanup(f.q.Close)
	f.q.Settle(f.Context())
}

// adopt adopts one lease.
func (f *fleet) adopt(r redlock.Record) (*redlock.Lease, *losses) {
	f.Helper()
	a, seen := f.adoptAll(r)
	if a.Errs[0] != nil {
		f.Fatal(a.Errs[0])
	}
	return a.Leases[0], seen
}

func (f *fleet) adoptAll(records ...redlock.Record) (*redlock.Adoption, *losses) {
	seen := &losses{}
	return f.q.Adopt(records, func(i int, l *redlock.Lease) {
		seen.count.Add(1)
		seen.at.Store(int64(f.now()))
		want(f, "token of the record with that index", l.Record().Token, records[i].Token)
	}), seen
}

// allKinds has a request for x of each kind.
var allKinds = map[string]redlock.Request{
	"exclusive":     {Name: "x", TTL: 3 * time.Second, Keep: true},
	"shared":        {Name: "x", TTL: 3 * time.Second, Keep: true, Shared: true},
	"semaphore":     {Name: "x", TTL: 3 * time.Second, Keep: true, Slots: 3},
	"several names": {Names: []string{"x", "y", "z"}, TTL: 3 * time.Second, Keep: true},
	"guarded":       {Name: "x", TTL: 3 * time.Second, Keep: true, Guard: 700 * ms, Max: time.Hour},
}

// A lease continues unchanged in another process. That process extends it at once and from then
// on, and releases it as usual. Guards Adopt, Record.
func TestAdopt(t *testing.T) {
	for what, r := range allKinds {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l := f.acquire(r)
			record, deadline, keys := l.Record(), l.Deadline(), len(f.keys())
			f.restart(time.Second)
			begin := f.now()
			a, seen := f.adoptAll(record)
			next := a.Leases[0]
			if next.Deadline() < deadline { // it may be confirmed by now
				t.Errorf("%s: adopted with the deadline %v, recorded was %v", what, next.Deadline(), deadline)
			}
			want(t, what+": Wait", a.Wait(t.Context()), nil)
			want(t, what+": Wait took less than 10 ms", f.now()-begin < 10*ms, true)
			wantSame(t, what, next, l)
			if next.Deadline() < begin+r.TTL-32*ms {
				t.Errorf("%s: not extended at once: valid for another %v", what, next.Validity())
			}
			f.at(begin, time.Minute)
			f.wantHeld(next, seen)
			want(t, what+": keys", len(f.keys()), keys)
			f.release(next)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

// wantSame checks that two leases are equal except for their deadlines.
func wantSame(t *testing.T, what string, got, was *redlock.Lease) {
	t.Helper()
	want(t, what+": ID", got.ID(), was.ID())
	want(t, what+": fencing token", got.Fence(), was.Fence())
	want(t, what+": Since", got.Since(), was.Since())
	want(t, what+": TTL", got.TTL(), was.TTL())
	want(t, what+": name", got.Name(), was.Name())
	want(t, what+": names", slices.Equal(got.Names(), was.Names()), true)
	want(t, what+": Shared", got.Shared(), was.Shared())
	want(t, what+": Slots", got.Slots(), was.Slots())
	want(t, what+": Slot", got.Slot(), was.Slot())
	a, b := got.Record(), was.Record()
	want(t, what+": token", a.Token, b.Token)
	want(t, what+": guard", a.Guard, b.Guard)
	want(t, what+": End", a.End, b.End)
	want(t, what+": Keep", a.Keep, b.Keep)
}

// The nodes get whole milliseconds. The truncation must not make Adopt refuse a record: half of
// the requested ttl is more than half of the truncated one.
func TestAdoptFractions(t *testing.T) {
	const ttl = 3*time.Second + 900*time.Microsecond
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: ttl, Keep: true, Guard: ttl / 2})
		granted := l.Record()
		guarded := f.acquire(redlock.Request{Name: "y", TTL: ttl, Keep: true, Guard: ttl / 3})
		wantErr(t, "a ttl of twice the guard, less a fraction", guarded.Extend(t.Context(), 2*(ttl/3)), redlock.ErrRequest)
		f.restart(0)
		for _, r := range []redlock.Record{granted, guarded.Record()} {
			a, _ := f.adoptAll(r)
			want(t, r.Names[0], a.Errs[0], nil)
		}
	})
}

// If no quorum is reachable after the restart, the holder gets LOST exactly at the recorded
// deadline less the guard. Guards Adoption.begin: arm.
func TestAdoptedLostInstant(t *testing.T) {
	for what, fault := range faults {
		for guard, before := range map[time.Duration]time.Duration{0: 600 * ms, ms: ms, 1500 * ms: 1500 * ms} {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				r := kept3s
				r.Guard = guard
				record := f.acquire(r).Record()
				f.q.Close()
				every(f.sims[:3], fault.begin)
				f.restart(500 * ms)
				l, seen := f.adopt(record)
				<-l.Lost()
				f.wantLost(l, seen, record.Deadline-before, redlock.LostQuorum)
				time.Sleep(5 * time.Second)
				want(t, what+": losses reported", seen.count.Load(), int32(1))
				every(f.sims[:3], fault.end)
				time.Sleep(2 * time.Second)
				f.wantNoKeys(what)
			})
		}
	}
}

// If LOST was due while no daemon was running, the adopted lease reports it at once. It is never
// extended, and is released at its deadline, not before. Guards Adoption.begin: forgotten;
// Quorum.adoptable.
func TestAdoptExpired(t *testing.T) {
	for _, away := range []time.Duration{2368 * ms, 2500 * ms, 2967 * ms, 3000 * ms, 10 * time.Second} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l := f.acquire(kept3s)
			record := l.Record()
			f.q.Close()
			f.at(l.Since(), away)
			f.restart(0)
			j, begin := f.record(), f.now()
			next, seen := f.adopt(record)
			wantErr(t, "the lease, right after Adopt", next.Err(), redlock.ErrLost)
			<-next.Lost()
			f.wantLost(next, seen, begin, redlock.LostQuorum)
			time.Sleep(10 * time.Second)
			want(t, name("extensions, %v after the grant", away), len(j.of("e"))+len(j.of("p")), 0)
			for _, o := range j.of("r") {
				if o.at < record.Deadline {
					t.Errorf("released %v before the deadline", record.Deadline-o.at)
				}
			}
			want(t, "releases", len(j.of("r")), 5)
		})
	}
}

// The cause of the loss is that no process is known to have extended the lease in time. This cause
// is not given if an extension was still possible soon enough. Guards adoptable: nextExtension.
func TestAdoptOverdue(t *testing.T) {
	for _, c := range []struct {
		away, due time.Duration // 0: the extension was not overdue
		down      bool
	}{
		{away: 2500 * ms, due: 1500 * ms}, // minus the drift allowance
		{away: 2000 * ms, due: 1400 * ms, down: true},
		{away: 1000 * ms, down: true},
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l := f.acquire(kept3s)
			f.q.Close()
			f.at(l.Since(), c.away)
			f.restart(0)
			if c.down {
				every(f.sims, hang)
			}
			next, _ := f.adopt(l.Record())
			<-next.Lost()
			overdue, is := errors.AsType[*redlock.OverdueError](next.Cause())
			want(t, name("overdue, adopted after %v", c.away), is, c.due != 0)
			if is {
				wantWithin(t, "due before", overdue.Due, c.due-50*ms, c.due+50*ms)
				want(t, "asked", overdue.Asked != 0, c.down)
			}
		})
	}
}

// If a lease was granted late to an earlier process, and no process extended it, it is lost too.
// Guards Lease.lateGrantTimeLocked.
func TestAdoptGrantedLate(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.delay(each(0), func(int) time.Duration { return 1200 * ms })
		l := f.acquire(kept3s)
		record := l.Record()
		f.q.Close()
		f.delay(each(0), each(0))
		f.at(l.Since(), 2500*ms)
		f.restart(0)
		next, _ := f.adopt(record)
		<-next.Lost()
		overdue, is := errors.AsType[*redlock.OverdueError](next.Cause())
		if want(t, "overdue", is, true); is {
			want(t, "granted late", overdue.Took, 0)
		}
	}, func(o *redlock.Options) { o.NodeTimeout = 1300 * ms })
}

// If the nodes no longer hold the lock, the adopted lease is lost at once. Adopt does
// not recreate it.
func TestAdoptLeaseThatNodesLost(t *testing.T) {
	for reason, trouble := range map[redlock.LostReason]func(*fleet){
		redlock.LostQuorum: func(f *fleet) { every(f.sims[:3], forget) },
		redlock.LostForced: func(f *fleet) { f.q.Force(f.Context(), "x") },
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			record := f.acquire(kept3s).Record()
			f.restart(100 * ms)
			trouble(f)
			a, seen := f.adoptAll(record)
			want(t, "Wait", a.Wait(t.Context()), nil)
			synctest.Wait()
			want(t, "reason", a.Leases[0].Reason(), reason)
			want(t, "losses reported", seen.count.Load(), int32(1))
		})
	}
}

// An adopted lease supports every operation of a lease.
func TestAdoptedIsALease(t *testing.T) {
	for what, use := range map[string]func(t *testing.T, f *fleet, l *redlock.Lease){
		"Extend": func(t *testing.T, f *fleet, l *redlock.Lease) {
			want(t, "Extend", l.Extend(t.Context(), 10*time.Second), nil)
			want(t, "TTL", l.TTL(), 10*time.Second)
			f.release(l)
		},
		"HandOver": func(t *testing.T, f *fleet, l *redlock.Lease) {
			next := f.passOn(l, redlock.Request{Name: "x", TTL: time.Second})
			want(t, "a larger fencing token", next.Fence() > l.Fence(), true)
			wantErr(t, "the previous lease", l.Err(), redlock.ErrReleased)
			f.release(next)
		},
		"Force": func(t *testing.T, f *fleet, l *redlock.Lease) {
			_, err := f.q.Force(t.Context(), "x")
			want(t, "Force", err, nil)
			want(t, "reason", l.Reason(), redlock.LostForced)
		},
		"Lose": func(t *testing.T, f *fleet, l *redlock.Lease) {
			l.Lose(redlock.LostBeat)
			want(t, "reason", l.Reason(), redlock.LostBeat)
			f.at(l.Deadline(), ms)
		},
		"LoseSilently": func(t *testing.T, f *fleet, l *redlock.Lease) {
			l.LoseSilently()
			f.at(l.Deadline(), ms)
		},
		"repair": func(t *testing.T, f *fleet, l *redlock.Lease) {
			every(f.sims[:2], forget)
			time.Sleep(2100 * ms)
			want(t, "keys", len(f.keys()), 5)
			f.release(l)
		},
		"release while nodes are down": func(t *testing.T, f *fleet, l *redlock.Lease) {
			every(f.sims[:2], down)
			f.release(l)
			every(f.sims[:2], up)
			time.Sleep(900 * ms) // less than its ttl
		},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			record := f.acquire(kept3s).Record()
			f.restart(time.Second)
			l, _ := f.adopt(record)
			synctest.Wait()
			use(t, f, l)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

// An adopted lease without Keep is not extended. An adopted lease with a limited holding time is
// not extended beyond that limit.
func TestAdoptedEnds(t *testing.T) {
	for reason, r := range map[redlock.LostReason]redlock.Request{
		redlock.LostExpired: {Name: "x", TTL: 3 * time.Second},
		redlock.LostMax:     {Name: "x", TTL: 3 * time.Second, Keep: true, Max: 5 * time.Second},
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l := f.acquire(r)
			f.restart(time.Second)
			next, _ := f.adopt(l.Record())
			<-next.Lost()
			want(t, "reason", next.Reason(), reason)
			want(t, "lost, after the grant", f.now()-l.Since(), max(r.TTL-32*ms, r.Max)-600*ms)
		})
	}
}

// No attempt of this host requests a semaphore slot that an adopted lease holds. Guards
// attempts.Slots.Hold.
func TestAdoptedSlotIsTaken(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		r := redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true, Slots: 2}
		l := f.acquire(r)
		f.restart(time.Second)
		f.adopt(l.Record())
		synctest.Wait()
		j := f.record()
		for range 20 {
			next := f.acquire(r)
			want(t, "slot", next.Slot(), 3-l.Slot())
			f.release(next)
		}
		for _, o := range j.of("s") {
			want(t, "requested slot", o.token[0], byte('0'+3-l.Slot()))
		}
	})
}

// Thousands of leases are adopted with few calls, and Wait waits for all of them. Guards
// watchAll, batchSize.
func TestAdoptMany(t *testing.T) {
	const leases = 1000
	simTest(t, 3, func(t *testing.T, f *fleet) {
		var records []redlock.Record
		for i := range leases {
			records = append(records, f.acquire(redlock.Request{Name: name("x%d", i), TTL: 10 * time.Second, Keep: true}).Record())
		}
		f.restart(time.Second)
		f.delay(each(ms), each(ms))
		j, begin := f.record(), f.now()
		a, seen := f.adoptAll(records...)
		want(t, "Wait", a.Wait(t.Context()), nil)
		for i, l := range a.Leases {
			if l.Deadline() < begin+10*time.Second-102*ms {
				t.Fatalf("lease %d of %d is not confirmed when Wait returns", i, leases)
			}
		}
		time.Sleep(100 * ms)
		for node, commands := range j.perNode() {
			want(t, name("extensions on node %d", node), len(j.on(node, "e")), leases)
			if most := leases/64 + 2; commands > most {
				t.Errorf("node %d: %d commands, want at most %d", node, commands, most)
			}
		}
		want(t, "lost", seen.count.Load(), int32(0))
	})
}

// If no node confirms a lease, Wait ends with its context, or when the leases have ended.
func TestAdoptionWait(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		record := f.acquire(kept3s).Record()
		f.q.Close()
		every(f.sims[:2], down)
		f.restart(0)
		a, _ := f.adoptAll(record)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		wantErr(t, "Wait, with nodes down", a.Wait(ctx), context.DeadlineExceeded)
		want(t, "Wait until the lease is lost", a.Wait(t.Context()), nil)
		wantErr(t, "the lease", a.Leases[0].Err(), redlock.ErrLost)
		for range 20 {
			want(t, "Wait, with nothing to wait for", a.Wait(ctx), nil)
		}
		none, _ := f.adoptAll()
		want(t, "Wait for none", none.Wait(t.Context()), nil)
	})
}

// DeadlineChanged reports each change of a deadline. The hook can query the lease.
func TestDeadlineChangesAreReported(t *testing.T) {
	var reports atomic.Int32
	var last atomic.Int64
	hook := func(o *redlock.Options) {
		o.DeadlineChanged = func(l *redlock.Lease) { reports.Add(1); last.Store(int64(l.Record().Deadline)) }
	}
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(kept3s)
		want(t, "reports after the grant", reports.Load(), int32(0))
		f.at(l.Since(), 1200*ms)
		want(t, "reports after the keeper's extension", reports.Load(), int32(1))
		want(t, "the reported deadline", time.Duration(last.Load()), l.Deadline())
		want(t, "Extend", l.Extend(t.Context(), 5*time.Second), nil)
		want(t, "reports when Extend has returned", reports.Load(), int32(2))
		want(t, "the reported deadline after Extend", time.Duration(last.Load()), l.Deadline())
		every(f.sims[:2], hang)
		wantErr(t, "Extend", l.Extend(t.Context(), 5*time.Second), redlock.ErrNoQuorum)
		want(t, "reports after a failed Extend", reports.Load(), int32(2))
	}, hook)
}

// DeadlinesMovedBack is called after all leases have aged. Guards keeper.age.
func TestAgedDeadlinesAreReported(t *testing.T) {
	long := func(o *redlock.Options) { o.MaxTTL = 20 * time.Second }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		var leases [2]*redlock.Lease
		var seen [2]atomic.Int64
		paused, pause := f.pausedHost(long, func(o *redlock.Options) {
			o.DeadlinesMovedBack = func() {
				for i, l := range leases {
					seen[i].Store(int64(l.Deadline()))
				}
			}
		})
		time.Sleep(25 * time.Second)
		for i := range leases {
			l, err := paused.Acquire(t.Context(), redlock.Request{Name: name("x%d", i), TTL: 20 * time.Second})
			want(t, "error", err, nil)
			leases[i] = l
		}
		before := leases[0].Deadline()
		pause(5 * time.Second)
		time.Sleep(3 * time.Second)
		want(t, "the deadline has moved back", leases[0].Deadline() < before-4*time.Second, true)
		for i, l := range leases {
			want(t, name("reported deadline of lease %d", i), time.Duration(seen[i].Load()), l.Deadline())
		}
	}, withQuarantine, long)
}

// A lease that was lost before the restart stays lost, and the loss is not reported again. It is
// released at its deadline, because its holder may still be stopping. If the deadline has passed,
// it is released at once. Guards Lease.adoptLost.
func TestAdoptedLostLeaseStaysLost(t *testing.T) {
	for _, away := range []time.Duration{500 * ms, 5 * time.Second} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
			l.Lose(redlock.LostBeat)
			record := l.Record()
			f.q.Close()
			every(f.sims, func(s *redlocktest.Sim) { s.Do("PEXPIRE", "redlock:x", "60000") }) // only a release ends the lock
			f.restart(away)
			j, begin := f.record(), f.now()
			a, seen := f.adoptAll(record)
			next := a.Leases[0]
			want(t, "Wait", a.Wait(t.Context()), nil)
			wantErr(t, "the lease", next.Err(), redlock.ErrLost)
			want(t, "reason", next.Reason(), redlock.LostBeat)
			next.Keep() // has no effect on a lost lease
			due := max(record.Deadline, begin)
			want(t, "left on the nodes", next.TimeToRelease(), due-begin)
			f.at(due, 10*time.Second)
			f.wantNoKeys("in the end")
			want(t, "releases", len(j.of("r")), 5)
			for _, o := range j.of("r") {
				want(t, name("time from deadline to release, restarted after %v", away), o.at-due, 0)
			}
			want(t, "extensions", len(j.of("e")), 0)
			want(t, "losses reported", seen.count.Load(), int32(0))
		})
	}
}

// Wait does not wait for a lease without Keep, which nobody extends. Guards Adoption.begin:
// extendable.
func TestAdoptionDoesNotWaitForLeaseWithoutKeep(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		record := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second}).Record()
		f.restart(0)
		begin := f.now()
		a, _ := f.adoptAll(record)
		want(t, "Wait", a.Wait(t.Context()), nil)
		want(t, "Wait took", f.now()-begin, 0)
		want(t, "the lease", a.Leases[0].Err(), nil)
	})
}
