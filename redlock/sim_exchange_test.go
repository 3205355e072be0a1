package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// exchangeIn is the time after a pass within which the nodes get a token that names the client.
const exchangeIn = 510 * ms

// byClient returns the request passed for a client with this pid.
func byClient(pid int) redlock.Request {
	r := passed
	r.Holder = redlock.Holder{Host: "h", PID: pid, UID: pid, User: "u"}
	return r
}

// pids returns the processes that the nodes show as holders of x.
func (f *fleet) pids() (pids []int) {
	f.Helper()
	shown, err := f.q.Who(f.Context(), "x")
	want(f, "Who", err, nil)
	for _, h := range shown {
		pids = append(pids, h.Holder.PID)
	}
	return pids
}

// wantHolder checks that the nodes show one process as the holder of x.
func (f *fleet) wantHolder(when string, pid int) {
	f.Helper()
	if pids := f.pids(); len(pids) != 1 || pids[0] != pid {
		f.Errorf("%s: the nodes show %v, want %d", when, pids, pid)
	}
}

// watchPass passes x to a client, and returns its lease before the exchange.
func (f *fleet) watchPass(pid int) (*redlock.Lease, *losses) {
	f.Helper()
	r := byClient(pid)
	seen := f.seeLosses(&r)
	return f.passTo(f.acquire(byClient(1)), r), seen
}

// exchanged passes x to a client, and returns its lease after the exchange.
func (f *fleet) exchanged(pid int) (*redlock.Lease, *losses) {
	f.Helper()
	l, seen := f.watchPass(pid)
	time.Sleep(exchangeIn)
	return l, seen
}

// If a grant by a pass lasts, the nodes get a token that names its client, which another host
// sees. The lease keeps its ID and fencing token. No operation is sent before the exchange.
func TestExchange(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"x", "y"}} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			r := byClient(1)
			r.Name, r.Names = "", names
			first := f.acquire(r)
			r.Holder.PID = 2
			granted := time.Now()
			l := f.passTo(first, r)
			id, fence := l.ID(), l.Fence()
			f.wantHolder("after the pass", 1)
			time.Sleep(200 * ms)
			j := f.record()
			time.Sleep(290 * ms)
			want(t, "extensions before the exchange", len(j.of("e"))+len(j.of("v"))+len(j.of("u")), 0)
			time.Sleep(20 * ms)
			shown, err := other.Who(t.Context(), "x")
			want(t, "Who", err, nil)
			want(t, "holders", len(shown), 1)
			want(t, "process", shown[0].Holder.PID, 2)
			want(t, "nodes", shown[0].Held, 5)
			want(t, "id on the nodes", shown[0].ID(), id)
			if off := shown[0].Holder.Since.Sub(granted).Abs(); off > ms {
				t.Errorf("Since is off by %v", off)
			}
			want(t, "lease", l.Err(), nil)
			want(t, "id", l.ID(), id)
			want(t, "fencing token", l.Fence(), fence)
			time.Sleep(time.Minute)
			want(t, "lease", l.Err(), nil)
			next := f.passOn(l, r)
			want(t, "passed", next.Passed(), false)
			if next.Fence() <= fence {
				t.Errorf("fencing token %d after %d", next.Fence(), fence)
			}
			f.release(next)
			synctest.Wait()
			f.wantNoKeys("in the end")
		})
	}
}

// A lock keeps its token if it is passed again within half a second, or was not passed.
func TestNoExchange(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		j := f.record()
		l := f.acquire(byClient(1))
		for pid := range 50 {
			l = f.passTo(l, byClient(2+pid))
			time.Sleep(40 * ms)
		}
		f.release(l)
		f.acquire(byClient(1))
		time.Sleep(10 * time.Second)
		want(t, "exchanges", len(j.of("u")), 0)
	})
}

// If TokenChanges cannot record the new token, the tokens are not exchanged, and the exchange is
// retried later.
func TestExchangeIsRecordedFirst(t *testing.T) {
	var noted []redlock.Record
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, _ := f.exchanged(2)
		f.wantHolder("when the new token was not recorded", 1)
		want(t, "record", l.Record().Former, "")
		time.Sleep(exchangeIn)
		f.wantHolder("when the new token was recorded", 2)
		record := l.Record()
		want(t, "calls of TokenChanges", len(noted), 2)
		want(t, "token", record.Token, noted[1].Token)
		want(t, "former token", record.Former, noted[1].Former)
		want(t, "id", record.ID(), l.ID())
	}, func(o *redlock.Options) {
		o.TokenChanges = func(_ *redlock.Lease, to redlock.Record) bool {
			noted = append(noted, to)
			return len(noted) == 2
		}
	})
}

// A node that hangs during the exchange gets the new token with the next extension.
func TestExchangeReachesHungNodeLater(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.passTo(f.acquire(byClient(1)), byClient(2))
		hang(f.sims[2])
		time.Sleep(exchangeIn)
		f.wantHolder("without one node", 2)
		f.sims[2].Resume()
		time.Sleep(2 * time.Second)
		want(t, "lease", l.Err(), nil)
		record := l.Record()
		f.wantOnNodes("after an extension", record.Token)
	})
}

// If too few nodes answer, the lease stays as valid as before, and each extension retries the
// exchange.
func TestExchangeWithoutQuorum(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watchPass(2)
		time.Sleep(400 * ms)
		every(f.sims[:3], hang)
		time.Sleep(time.Second)
		every(f.sims[:3], resume)
		time.Sleep(2 * time.Second)
		f.wantHolder("after an extension", 2)
		f.wantHeld(l, seen)
	})
}

// Even if Request.Max rules out an extension, the lease requests the exchange until a quorum
// answers. Another host sees the right process within a second.
func TestExchangeAtMax(t *testing.T) {
	for what, away := range map[string]int{"all nodes answer": 0, "three of five are down for a while": 3} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			r := byClient(2)
			r.Max = 2 * time.Second
			l := f.passTo(f.acquire(byClient(1)), r)
			time.Sleep(400 * ms)
			every(f.sims[:away], down)
			time.Sleep(200 * ms)
			every(f.sims[:away], up)
			time.Sleep(400 * ms)
			f.wantHolder(what+": after a second", 2)
			j := f.record()
			time.Sleep(1100 * ms)
			want(t, what+": exchanges after that", len(j.of("u")), 0)
			wantErr(t, what+": lease", l.Err(), redlock.ErrLost)
			want(t, what+": reason", l.Reason(), redlock.LostMax)
			f.wantNoKeys(what)
		})
	}
}

// A release, a hand-over and a downgrade also affect nodes that still have the former token,
// however many these are.
func TestReleaseDuringAnExchange(t *testing.T) {
	for nodes := range 6 {
		for what, end := range map[string]func(f *fleet, l *redlock.Lease){
			"release": func(f *fleet, l *redlock.Lease) { f.release(l) },
			"hand-over": func(f *fleet, l *redlock.Lease) {
				next := f.passOn(l, byClient(3))
				f.wantHolder("after the hand-over", 3)
				f.release(next)
			},
			"downgrade": func(f *fleet, l *redlock.Lease) {
				want(f, "Downgrade", l.Downgrade(f.Context(), 0, nil), nil)
				time.Sleep(10 * time.Second)
				want(f, "lease", l.Err(), nil)
				f.release(l)
			},
		} {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				l, _ := f.exchanged(2)
				former := l.Record().Former
				for _, sim := range f.sims[nodes:] { // as if the exchange had not reached these nodes
					sim.Do("SET", "redlock:x", former, "PX", "3000")
				}
				end(f, l)
				synctest.Wait()
				f.wantNoKeys(name("%s when %d nodes have the new token", what, nodes))
			})
		}
	}
}

// FORCE revokes the lock under whichever token the nodes have. Nothing restores it.
func TestForceDuringAnExchange(t *testing.T) {
	for after := 380 * ms; after < 560*ms; after += spaced(5 * ms) {
		for _, here := range []bool{true, false} {
			twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
				q := other
				if here {
					q = f.q
				}
				f.delay(each(ms), each(ms))
				l, _ := f.watchPass(2)
				time.Sleep(after)
				_, err := q.Force(t.Context(), "x")
				want(t, name("FORCE after %v", after), err, nil)
				f.wantNoKeys(name("FORCE after %v", after))
				time.Sleep(2 * time.Second)
				wantErr(t, name("lease, FORCE after %v", after), l.Err(), redlock.ErrLost)
				want(t, "reason", l.Reason(), redlock.LostForced)
				f.wantNoKeys(name("FORCE after %v, later", after))
			})
		}
	}
}

// An extension that was sent before the exchange does not repair a node with the new token: FORCE
// may have recorded the former token there. The next extension repairs it. Guards Lease.repair.
func TestRepairDuringAnExchange(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watchPass(2)
		time.Sleep(480 * ms)
		forget(f.sims[0])
		delay := func(node int) time.Duration {
			if node == 0 {
				return 5 * ms // this node answers before the exchange begins, the others after that
			}
			return 20 * ms
		}
		f.delay(delay, delay)
		want(t, "Extend", l.Extend(t.Context(), 0), nil)
		record := l.Record()
		if record.Former == "" {
			t.Fatal("the exchange did not begin before the answers")
		}
		want(t, "repairs by the first extension", f.q.Status().Counts.Repairs, uint64(0))
		time.Sleep(100 * ms)
		want(t, "repairs by the second extension", f.q.Status().Counts.Repairs, uint64(1))
		f.wantOnNodes("after both", record.Token)
		f.wantHeld(l, seen)
	})
}

// A holder on the same Quorum learns of FORCE at once, even if its nodes have the former token.
func TestForceOfFormerToken(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.exchanged(2)
		for _, sim := range f.sims[:3] { // as if the exchange had not reached these nodes
			sim.Do("SET", "redlock:x", l.Record().Former, "PX", "3000")
		}
		at := f.now()
		_, err := f.q.Force(t.Context(), "x")
		want(t, "FORCE", err, nil)
		want(t, "losses", seen.count.Load(), 1)
		wantWithin(t, "time from FORCE to the loss", time.Duration(seen.at.Load())-at, 0, 5*ms)
		want(t, "reason", l.Reason(), redlock.LostForced)
	})
}

// A client that extends or downgrades its lease during an exchange does not lose it, whichever
// reaches a node first.
func TestExtendDuringAnExchange(t *testing.T) {
	for after := 480 * ms; after < 520*ms; after += spaced(ms / 2) {
		for what, change := range map[string]func(f *fleet, l *redlock.Lease) error{
			"Extend":    func(f *fleet, l *redlock.Lease) error { return l.Extend(f.Context(), 0) },
			"Downgrade": func(f *fleet, l *redlock.Lease) error { return l.Downgrade(f.Context(), 0, nil) },
		} {
			simTest(t, 3, func(t *testing.T, f *fleet) {
				f.delay(each(ms), each(ms))
				l, seen := f.watchPass(2)
				time.Sleep(after)
				want(t, name("%s after %v", what, after), change(f, l), nil)
				time.Sleep(10 * time.Second)
				f.wantHeld(l, seen)
				f.release(l)
				synctest.Wait()
				f.wantNoKeys("in the end")
			})
		}
	}
}

// A lane sends a due extension before an extension that a client requested. So the nodes get the
// new token first, and no longer know the former one when the client's extension arrives.
func TestExchangeOvertakesExtend(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watchPass(2)
		time.Sleep(480 * ms)
		shut := make(chan struct{})
		gate.Store(&shut)
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(f.Context(), 0) }()
		time.Sleep(30 * ms)
		gate.Store(nil)
		close(shut)
		want(t, "Extend", <-extended, nil)
		f.wantHolder("in the end", 2)
		f.wantHeld(l, seen)
	}, func(o *redlock.Options) {
		redlock.Gate(o, func() {
			if shut := gate.Load(); shut != nil {
				<-*shut
			}
		})
	})
}

// If a daemon ends during an exchange, the next daemon continues from its record, whichever nodes
// have the new token. If a lock was passed and its token not exchanged yet, the next daemon
// exchanges it.
func TestExchangeIsAdopted(t *testing.T) {
	for nodes := range 6 {
		for what, shared := range map[string]bool{"exclusive": false, "shared": true} {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				l, _ := f.exchanged(2)
				record := l.Record()
				record.Shared = shared
				for _, sim := range f.sims[nodes:] {
					sim.Do("SET", "redlock:x", record.Former, "PX", "3000")
				}
				f.restart(20 * ms)
				next, seen := f.adopt(record)
				want(t, what+": id", next.ID(), l.ID())
				time.Sleep(10 * time.Second)
				f.wantHeld(next, seen)
				want(t, what+": shared", next.Shared(), shared)
				f.wantHolder(what, 2)
				f.release(next)
				synctest.Wait()
				f.wantNoKeys(what)
			})
		}
	}
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.passTo(f.acquire(byClient(1)), byClient(2))
		record := l.Record()
		record.Holder = byClient(2).Holder
		f.restart(20 * ms)
		next, seen := f.adopt(record)
		time.Sleep(exchangeIn)
		f.wantHolder("after the restart", 2)
		time.Sleep(10 * time.Second)
		f.wantHeld(next, seen)
	})
}

// If an earlier daemon released a lease during an exchange, Abandon releases it on each node.
func TestExchangedIsAbandoned(t *testing.T) {
	for nodes := range 6 {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, _ := f.exchanged(2)
			record := l.Record()
			for _, sim := range f.sims[nodes:] {
				sim.Do("SET", "redlock:x", record.Former, "PX", "3000")
			}
			f.restart(20 * ms)
			want(t, "Abandon", f.q.Abandon(record), nil)
			time.Sleep(20 * ms)
			f.wantNoKeys("after Abandon")
		})
	}
}
