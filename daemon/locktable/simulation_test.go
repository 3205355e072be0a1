package locktable

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// The simulation drives the Table and the Queue as package session does, in virtual time, with clients
// that lock, wait, repeat, resume and die, with losses, FORCE and restarts. Between any two steps
// another goroutine of the daemon may run: the seed decides which one. After each step it checks what
// must always hold (see check), and at the end that nothing is left.
//
// planted_test.go has mistakes that it must find.

var (
	simSeeds = flag.Int("seeds", 0, "TestSimulation: how many seeds; 0: a few, or many with REDLOCKD_LONG")
	simFrom  = flag.Uint64("from", 0, "TestSimulation: the first seed")
)

// TestSimulation finds no mistake. A failure names its seed: go test -run TestSimulation -from N -seeds 1.
func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	switch {
	case seeds > 0:
	case os.Getenv("REDLOCKD_LONG") != "":
		seeds = 20000
	default:
		seeds = 300
	}
	for i := range uint64(seeds) {
		if found := simulate(*simFrom + i); found != nil {
			t.Fatalf("seed %d: %v", *simFrom+i, found)
		}
	}
}

// finding is what a check of the simulation found.
type finding struct{ check, text string }

func (f *finding) Error() string { return f.check + ": " + f.text }

// tableSim is one simulation.
type tableSim struct {
	random  *rand.Rand
	now     time.Duration
	timers  []simTimer
	tasks   []*simTask
	started int       // the daemon's restarts
	left    int       // restarts that are still to come
	calm    int       // one step of so many is a restart
	haste   int       // in percent: how often time passes although the daemon has something to do
	boot    *simTask  // restores, before anything else runs; nil: that is over
	asks    []*simAsk // under way

	table  *Table
	queue  *Queue
	order  []*simLease      // in the queue, in the order of Join
	claims map[*Waiter]bool // between ClaimNext and Deliver or Unclaim
	begun  map[*redlock.PendingAttempt]*simGrant
	bounds Limits
	counts map[*simLease]bool // LOCKs and leases that the limits count; true: it waits

	tokens  []*simToken // on the nodes
	conns   []*simConn
	leases  []*simLease // that were granted, and whose end was not checked yet
	records map[int]*simRecord
	opened  map[uint64]*RecordedConn // the connections in the state file
	numbers int
}

type simTimer struct {
	at  time.Duration
	run func(*simTask) // nil: it wakes a client
}

// simTask is a goroutine of the daemon, or a client.
type simTask struct {
	s        *tableSim
	isClient bool
	next     func() (func() bool, bool)
	stop     func()
	yield    func(func() bool) bool
	waits    func() bool // nil: it can run
}

type killed struct{}

// pause lets other tasks run.
func (p *simTask) pause() { p.until(func() bool { return true }) }

// until waits for an event.
func (p *simTask) until(condition func() bool) {
	if !p.yield(condition) {
		panic(killed{})
	}
}

func (s *tableSim) spawn(isClient bool, body func(*simTask)) {
	p := &simTask{s: s, isClient: isClient}
	p.next, p.stop = iter.Pull(func(yield func(func() bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		p.yield = yield
		body(p)
	})
	s.tasks = append(s.tasks, p)
}

func (s *tableSim) after(d time.Duration, run func(*simTask)) {
	s.timers = append(s.timers, simTimer{s.now + d, run})
}

// trace prints what happens, with -v and one seed.
func (s *tableSim) trace(format string, args ...any) {
	if testing.Verbose() && *simSeeds == 1 {
		fmt.Printf("%4d ms: "+format+"\n", append([]any{s.now / time.Millisecond}, args...)...)
	}
}

func (s *tableSim) chance(percent int) bool { return s.random.IntN(100) < percent }

func (s *tableSim) fail(check, format string, args ...any) {
	panic(&finding{check, fmt.Sprintf("%d ms: ", s.now/time.Millisecond) + fmt.Sprintf(format, args...)})
}

// run runs tasks and timers until nothing is left to do.
func (s *tableSim) run() {
	for range 200_000 {
		if s.left > 0 && s.boot == nil && s.random.IntN(s.calm) == 0 {
			s.left--
			s.restart()
		}
		var ready []*simTask
		for _, p := range s.tasks {
			if (s.boot == nil || s.boot == p) && (p.waits == nil || p.waits()) {
				ready = append(ready, p)
			}
		}
		if len(ready) == 0 || s.boot == nil && len(s.timers) > 0 && s.chance(s.haste) {
			if len(s.timers) == 0 {
				return
			}
			i := 0
			for j := range s.timers {
				if s.timers[j].at < s.timers[i].at {
					i = j
				}
			}
			timer := s.timers[i]
			s.timers = slices.Delete(s.timers, i, i+1)
			if s.now = max(s.now, timer.at); timer.run != nil {
				s.spawn(false, timer.run)
			}
			continue
		}
		p := ready[s.random.IntN(len(ready))]
		waits, more := p.next()
		if p.waits = waits; !more {
			s.tasks = slices.DeleteFunc(s.tasks, func(other *simTask) bool { return other == p })
			if s.boot == p {
				s.boot = nil
			}
		}
		if s.boot == nil {
			s.check()
		}
	}
	s.fail("endless", "the simulation does not end")
}

// simToken is what the nodes have of a lease.
type simToken struct {
	id    string
	names []string
	kind  Kind
	until time.Duration // 0: it is extended
}

func (s *tableSim) drop(token *simToken) {
	s.tokens = slices.DeleteFunc(s.tokens, func(other *simToken) bool { return other == token })
}

// free reports whether the nodes would grant a lock.
func (s *tableSim) free(l *simLease) bool {
	s.tokens = slices.DeleteFunc(s.tokens, func(token *simToken) bool { return token.until != 0 && token.until <= s.now })
	full := map[string]int{}
	for _, token := range s.tokens {
		for _, name := range token.names {
			if !slices.Contains(l.Waiter.Names, name) {
				continue
			}
			if full[name]++; token.kind != l.Waiter.Kind || token.kind.Exclusive() || token.kind.Slots > 0 && full[name] >= int(token.kind.Slots) {
				return false
			}
		}
	}
	return true
}

// simGrant is a redlock.Lease.
type simGrant struct {
	s      *tableSim
	id     string
	token  *simToken
	passed bool
	since  time.Duration
	err    error
	forced bool
	until  time.Duration // its deadline once nobody extends it
}

func (g *simGrant) ID() string           { return g.id }
func (g *simGrant) TokenID() string      { return g.token.id }
func (g *simGrant) Passed() bool         { return g.passed }
func (g *simGrant) Err() error           { return g.err }
func (g *simGrant) Since() time.Duration { return g.since }
func (g *simGrant) Validity() time.Duration {
	if g.until == 0 {
		return simTTL
	}
	return g.until - g.s.now
}

const (
	simTTL   = 50 * time.Millisecond
	simGuard = 10 * time.Millisecond
)

var (
	errSimLost      = errors.New("lost")
	errSimReleased  = errors.New("released")
	errSimHeld      = errors.New("held")
	errSimCancelled = errors.New("cancelled")
	errSimAlready   = errors.New("already")
)

// newGrant grants a lock on the nodes, or passes a token on. The attempt is in the state file before.
func (s *tableSim) newGrant(l *simLease, token *simToken) *simGrant {
	s.numbers++
	g := &simGrant{s: s, id: fmt.Sprint("grant ", s.numbers), token: token, passed: true, since: s.now}
	if token == nil {
		token = &simToken{id: fmt.Sprint("token ", s.numbers), names: l.Waiter.Names, kind: l.Waiter.Kind}
		s.tokens = append(s.tokens, token)
		g = &simGrant{s: s, id: token.id, token: token, since: s.now}
	}
	token.until = 0
	s.records[l.number] = &simRecord{l: l, grant: g, Recorded: Recorded{Token: token.id}}
	return g
}

// simLease is the heldLease of the simulation.
type simLease struct {
	Lease
	number  int
	grant   *simGrant
	min     time.Duration
	lingers bool
	ttl     bool // hold=ttl

	isDone   bool // its LOCK has ended
	refused  bool // its release could not begin, because it was lost
	failure  error
	cutUntil time.Duration // until when the client works after the daemon cut its connection; 0: it did not

	oks, losts, releases, leaves, heldTimes int      // how often each was told or done
	believed                                bool     // a client works with it
	view                                    *simConn // the connection that has it, as its client knows; nil: that changes
}

func (l *simLease) Request() redlock.Request { return redlock.Request{} }
func (l *simLease) Undelivered()             {}
func (l *simLease) Grant() Grant             { return l.grant }
func (l *simLease) EndsByItself() bool       { return l.ttl || l.grant.err != nil }

// inOrder returns leases in the order of their numbers, so that a seed always does the same.
func inOrder(all []*Lease) (sorted []*simLease) {
	for _, l := range all {
		sorted = append(sorted, simOf(l))
	}
	slices.SortFunc(sorted, func(a, b *simLease) int { return a.number - b.number })
	return sorted
}

func simOf(l *Lease) *simLease { return l.Backing().(*simLease) }

func (l *simLease) minLeft(now time.Duration) time.Duration {
	if l.min == 0 {
		return 0
	}
	return max(l.min-(now-l.grant.since), 0)
}

// simRecord is the record of a lease in the state file, after package state has applied all.
type simRecord struct {
	Recorded
	l             *simLease // as it was granted: names, kind, requester, options
	grant         *simGrant
	conn, process *simConn // process: nil if there is none
	further       []string
}

// simConn is a connection, or a process, with its client.
type simConn struct {
	Client
	number  int
	pending int // requests under way
	ending  bool
	cut     bool // with ending: by the daemon
	ended   bool
	broken  bool // by a restart: its client must connect again
}

func (s *tableSim) connect() *simConn {
	s.numbers++
	c := &simConn{number: s.numbers}
	c.Of = c
	s.conns = append(s.conns, c)
	s.opened[uint64(c.number)] = &RecordedConn{Stored: s.chance(70)}
	return c
}

// apply applies an event, and does what is due.
func (s *tableSim) apply(p *simTask, l *simLease, event Event) Due {
	before := l.Life
	due := s.table.Apply(&l.Lease, event)
	if due.Has(LeaveQueue) {
		delete(s.counts, l)
	}
	s.trace("lease %d: event %d, %v becomes %v, effects %b", l.number, event, before, l.Life, due.Effects)
	s.perform(p, l, nil, due)
	return due
}

// perform does what Host.perform of package session does.
func (s *tableSim) perform(p *simTask, l *simLease, client *Client, due Due) {
	for do := due.Effects; do != 0; do &= do - 1 {
		p.pause()
		r := s.records[l.number]
		switch do & -do {
		case StartHeartbeat, CountLoss, LogCut, ReleaseRevoked, LeaveProcess:
		case SendLost:
			reporter := l.Reporter()
			if reporter != nil {
				if l.losts++; l.oks == 0 || l.losts > 1 {
					s.fail("lost", "lease %d: LOST number %d after %d OK", l.number, l.losts, l.oks)
				}
				l.believed = false
			}
			if r != nil {
				r.Reported = true
			}
			if reporter == nil && !l.OfProcess {
				s.forgetLater(p, l)
			} else {
				s.apply(p, l, LossRemembered)
			}
		case ForgetLoss:
			s.forgetLater(p, l)
		case LetExpire:
			if l.minLeft(s.now) > 0 {
				l.min = max(l.min, s.now+simTTL-l.grant.since)
				s.releaseAbandoned(p, l, client)
				break
			}
			s.loseSilently(p, l)
		case Linger:
			s.after(20*time.Millisecond, func(p *simTask) { s.releaseAbandoned(p, l, client) })
		case ReleaseUnclaimed:
			l.min = max(l.min, s.now+simTTL-l.grant.since)
			l.cutUntil = s.now + simTTL
			s.after(l.minLeft(s.now), func(p *simTask) { s.releaseAbandoned(p, l, client) })
		case Release:
			s.releaseAbandoned(p, l, client)
		case BeginRelease:
			s.beginRelease(p, l)
		case LeaveAtDeadline:
			if left := l.grant.Validity(); left > 0 && !l.grant.forced {
				s.after(left, func(p *simTask) { s.apply(p, l, DeadlinePassed) })
			} else {
				s.apply(p, l, DeadlinePassed)
			}
		case LeaveQueue:
			if l.leaves++; l.leaves > 1 {
				s.fail("queue", "lease %d leaves the queue again", l.number)
			}
			s.order = slices.DeleteFunc(s.order, func(other *simLease) bool { return other == l })
			s.queue.Leave(&l.Waiter, nil)
		case CountHeldTime:
			if l.heldTimes++; l.heldTimes > 1 || l.oks == 0 && l.grant.err == errSimLost {
				s.fail("held", "lease %d counts as held %d times, with %d OK", l.number, l.heldTimes, l.oks)
			}
		case RememberLoss:
			if oldest := s.table.Remember(&l.Lease); oldest != nil {
				s.apply(p, simOf(oldest), Dropped)
			}
		case DeleteRecord:
			delete(s.records, l.number)
		case DelayRelease:
			s.updateOwner(l)
			s.releaseWhenMinPassed(l)
		default:
			s.fail("effect", "no case for %b", do&-do)
		}
	}
}

func (s *tableSim) updateOwner(l *simLease) {
	s.queue.ChangeOwner(&l.Waiter, l.Owns(), l.Life.State == Kept)
}

func (s *tableSim) forgetLater(p *simTask, l *simLease) {
	if left := l.grant.until - s.now; left > 0 && !l.grant.forced {
		s.after(left, func(p *simTask) { s.apply(p, l, Dropped) })
		return
	}
	s.apply(p, l, Dropped)
}

func (s *tableSim) releaseWhenMinPassed(l *simLease) {
	s.after(l.minLeft(s.now), func(p *simTask) {
		if l.Life.State == Kept && l.minLeft(s.now) > 0 {
			s.releaseWhenMinPassed(l)
			return
		}
		s.withoutClient(p, l, s.apply(p, l, MinPassed))
	})
}

func (s *tableSim) releaseAbandoned(p *simTask, l *simLease, client *Client) {
	if l.Holder() == client {
		s.withoutClient(p, l, s.apply(p, l, ClientIsGone))
	}
}

// withoutClient ends what no client waits for.
func (s *tableSim) withoutClient(p *simTask, l *simLease, due Due) {
	if due.Has(BeginRelease) && l.refused {
		s.apply(p, l, Dropped)
	}
}

// beginRelease keeps a lease with min=, or releases it.
func (s *tableSim) beginRelease(p *simTask, l *simLease) {
	if l.minLeft(s.now) > 0 && s.apply(p, l, MinNotPassed).Has(DelayRelease) {
		if r := s.records[l.number]; r != nil {
			r.Kept = true
		}
		return
	}
	if r := s.records[l.number]; r != nil && !r.Lost {
		r.Released = true
	}
	p.pause()
	next := s.queue.BeginRelease(&l.Waiter, l.grant.since, s.chance(20), s.now)
	if next != nil {
		s.claims[next] = true
		p.pause()
		var attempt *redlock.PendingAttempt
		if l.grant.err == nil && s.chance(80) {
			attempt = &redlock.PendingAttempt{}
			s.endGrant(l)
			if s.chance(50) {
				s.begun[attempt] = s.newGrant(simOfWaiter(next), l.grant.token)
			} else {
				s.drop(l.grant.token)
				s.begun[attempt] = s.newGrant(simOfWaiter(next), nil)
			}
		}
		p.pause()
		delete(s.claims, next)
		if attempt == nil {
			s.queue.Unclaim(next)
		} else if !s.queue.Deliver(next, attempt) {
			s.drop(s.begun[attempt].token)
			delete(s.records, simOfWaiter(next).number)
		}
		if attempt != nil {
			s.apply(p, l, ReleaseBegun)
			s.afterRelease(l)
			return
		}
	}
	if l.grant.err != nil {
		l.refused = true
		s.apply(p, l, ReleaseRefused)
		return
	}
	s.endGrant(l)
	s.drop(l.grant.token)
	s.apply(p, l, ReleaseBegun)
	s.afterRelease(l)
}

func simOfWaiter(w *Waiter) *simLease { return w.backing.(*simLease) }

// endGrant releases a lease on the nodes.
func (s *tableSim) endGrant(l *simLease) {
	l.grant.err = errSimReleased
	if l.releases++; l.releases > 1 {
		s.fail("release", "lease %d is released again", l.number)
	}
	if l.minLeft(s.now) > 0 {
		s.fail("min", "lease %d is released before min= has passed", l.number)
	}
	if s.works(l) {
		s.fail("abandoned", "lease %d is released while its client works", l.number)
	}
}

// afterRelease forgets a released lease when the nodes have answered.
func (s *tableSim) afterRelease(l *simLease) {
	s.after(time.Duration(s.random.IntN(5))*time.Millisecond, func(p *simTask) {
		s.apply(p, l, NodesReleased)
		delete(s.records, l.number)
	})
}

// lose ends a lease that is held, and tells the daemon.
func (s *tableSim) lose(l *simLease, forced bool) {
	if l.grant.err != nil {
		return
	}
	l.grant.err, l.grant.forced = errSimLost, forced
	l.grant.until, l.grant.token.until = s.now+simGuard, s.now+simGuard
	if forced {
		s.drop(l.grant.token)
	}
	s.spawn(false, func(p *simTask) { s.lost(p, l, WasLost) })
}

// lost records a loss, and applies its event.
func (s *tableSim) lost(p *simTask, l *simLease, event Event) {
	if r := s.records[l.number]; r != nil {
		r.Lost, r.Released = true, false
	}
	p.pause()
	s.apply(p, l, event)
}

// loseSilently stops the extensions of a lease.
func (s *tableSim) loseSilently(p *simTask, l *simLease) {
	if l.grant.err == nil {
		l.grant.err = errSimLost
		l.grant.until, l.grant.token.until = s.now+simTTL, s.now+simTTL
	}
	if l.grant.err == errSimLost {
		s.lost(p, l, ExtensionsEnded)
	}
}

// simAsk is a LOCK of a client.
type simAsk struct {
	s         *tableSim
	conn      *simConn
	process   *simConn // hold=pid
	uid       int
	isAllowed bool // the limits allowed it before a restart
	names     []string
	kind      Kind
	id        string
	reentrant bool
	patient   bool
	min       time.Duration
	lingers   bool
	ttl       bool
	deadline  time.Duration // of wait=
	cancelled bool

	answered bool
	lease    *simLease // nil: the LOCK failed
	err      error
}

func (a *simAsk) answer(l *simLease, err error) {
	if s := a.s; l != nil {
		s.trace("LOCK %v answered with lease %d by connection %d", a.names, l.number, a.conn.number)
	} else {
		s.trace("LOCK %v refused: %v", a.names, err)
	}
	a.answered, a.lease, a.err = true, l, err
	a.s.asks = slices.DeleteFunc(a.s.asks, func(other *simAsk) bool { return other == a })
	if err == nil {
		l.oks++
		if l.Reporter() == &a.conn.Client { // else a client has resumed it meanwhile
			l.view = a.conn
		}
	}
	a.conn.pending--
}

func (s *tableSim) isOver(a *simAsk) bool {
	return a.cancelled || a.conn.ending || a.process != nil && a.process.ending || s.now >= a.deadline
}

// lock handles a LOCK, as package session does.
func (s *tableSim) lock(p *simTask, a *simAsk) {
	l := &simLease{min: a.min, lingers: a.lingers, ttl: a.ttl}
	s.numbers++
	l.number, l.UID, l.ID, l.Owner = s.numbers, a.uid, a.id, "owner"
	l.Init(a.names, a.kind, a.patient, l)
	if holder := &a.conn.Client; a.process != nil {
		l.SetHolder(&a.process.Client, holder)
	} else {
		l.SetHolder(holder, holder)
	}
	if a.id != "" && a.process == nil && s.table.Unclaimed.Load() > 0 {
		if found := s.table.FindUnclaimed(&l.Lease); found != nil && s.table.TakeUnclaimed(&l.Lease, found) {
			a.answer(s.resume(p, simOf(found), a.conn))
			return
		}
	}
	ended := map[*Lease]bool{}
	for {
		if a.conn.HoldsOtherwise(&l.Lease) {
			a.answer(nil, errSimAlready)
			return
		}
		firsts := l.Holder().Begin(&l.Lease, ended)
		if firsts == nil {
			break
		}
		for _, first := range firsts {
			if s.join(p, a, l, simOf(first)) {
				return
			}
			ended[first] = true
		}
	}
	if err := s.charge(l, a.isAllowed); err != nil {
		s.endUngranted(p, a, l, err)
		return
	}
	p.pause()
	if err := s.queue.Join(&l.Waiter); err != nil {
		s.endUngranted(p, a, l, err)
		return
	}
	s.order = append(s.order, l)
	if err := s.acquire(p, a, l); err != nil {
		if begun := s.queue.Withdraw(&l.Waiter); begun != nil {
			s.drop(s.begun[begun].token)
		}
		p.pause()
		s.order = slices.DeleteFunc(s.order, func(other *simLease) bool { return other == l })
		s.queue.Leave(&l.Waiter, nil)
		s.endUngranted(p, a, l, err)
		return
	}
	s.leases = append(s.leases, l)
	p.pause()
	due := s.table.Grant(&l.Lease)
	if s.counts[l] {
		s.counts[l] = false
	}
	r := s.records[l.number]
	r.conn, r.process, r.further = a.conn, a.process, slices.Clone(l.Furthers())
	r.Conn, r.Granted, r.NeedsConn, r.OfProcess, r.Lingers = uint64(a.conn.number), true, !a.ttl && a.process == nil, a.process != nil, a.lingers
	s.perform(p, l, nil, due)
	if l.leaves == 0 { // else it was lost meanwhile, and other clients can have the lock
		s.checkOrder(l)
	}
	s.queue.Granted(&l.Waiter)
	p.pause()
	replaced, open := s.table.Name(&l.Lease)
	l.Holder().End(&l.Lease)
	l.isDone = true
	for _, old := range replaced {
		s.apply(p, simOf(old), Dropped)
	}
	if !open {
		s.clientEnded(p, l, l.Holder(), ClientEnd{Process: true})
	}
	p.pause()
	if l.grant.err != nil {
		a.answer(nil, l.grant.err)
		s.apply(p, l, LossRemembered)
		return
	}
	a.answer(l, nil)
	l.believed = !a.conn.ending && (a.process == nil || !a.process.ending) && l.Life.State == Held
	p.pause()
	s.apply(p, l, GrantReported)
}

// charge counts a LOCK, and checks that the limits refuse it if and only if they are reached.
func (s *tableSim) charge(l *simLease, isAllowed bool) error {
	before, n := s.counted(l.UID), len(l.Waiter.Names)
	err := s.table.Charge(&l.Lease, isAllowed)
	s.checkAllowed(err, isAllowed, s.bounds.Leases > 0 && before.leases+n > s.bounds.Leases || s.bounds.Waiters > 0 && l.Waiter.Patient && before.waiters >= s.bounds.Waiters)
	if err == nil {
		s.counts[l] = l.Waiter.Patient
	}
	return err
}

// checkAllowed checks that a LOCK is refused only above a limit, and not if it was allowed before a
// restart.
func (s *tableSim) checkAllowed(err error, isAllowed, isAbove bool) {
	switch {
	case errors.Is(err, ErrLimit) && (isAllowed || !isAbove):
		s.fail("limits", "refused, and allowed before: %v: %v", isAllowed, err)
	case err == nil && isAbove && !isAllowed:
		s.fail("limits", "a LOCK is above the limit")
	}
}

// counted returns what the limits must count for a user.
func (s *tableSim) counted(uid int) (u usage) {
	for l, waits := range s.counts {
		if l.UID != uid {
			continue
		}
		if u.leases += len(l.Waiter.Names) + l.Count() - 1; waits {
			u.waiters++
		}
	}
	for _, l := range s.table.byID {
		if l.UID == uid && l.Life.Memory == Remembered {
			u.lost++
		}
	}
	return u
}

// endUngranted ends a LOCK that got no lease.
func (s *tableSim) endUngranted(p *simTask, a *simAsk, l *simLease, err error) {
	delete(s.records, l.number)
	due := s.table.Apply(&l.Lease, NotGranted)
	delete(s.counts, l)
	l.failure, l.isDone = err, true
	l.Holder().End(&l.Lease)
	s.perform(p, l, nil, due)
	a.answer(nil, err)
}

// join handles a LOCK whose owner holds or wants a name already. It returns false if the first LOCK
// has ended.
func (s *tableSim) join(p *simTask, a *simAsk, l, first *simLease) bool {
	if first.isDone && (first.failure != nil || first.grant.err != nil) {
		return false
	}
	before := s.counted(first.UID).leases
	again, err := s.table.CountUp(&first.Lease, &l.Waiter, a.id, a.reentrant, a.isAllowed, errSimAlready)
	s.checkAllowed(err, a.isAllowed || again, s.bounds.Leases > 0 && before >= s.bounds.Leases)
	switch {
	case errors.Is(err, redlock.ErrReleased):
		return false
	case err != nil:
		a.answer(nil, err)
		return true
	}
	p.until(func() bool { return first.isDone || s.isOver(a) })
	if !first.isDone && !again && s.table.WithdrawCount(&first.Lease, a.id) {
		a.answer(nil, errSimCancelled)
		return true
	}
	p.until(func() bool { return first.isDone })
	if err = first.failure; err == nil {
		err = first.grant.err
	}
	if err == nil && !first.Counts(a.id) {
		err = errSimReleased
	}
	if err != nil {
		a.answer(nil, err)
		return true
	}
	if r := s.records[first.number]; r != nil {
		r.further = slices.Clone(first.Furthers())
	}
	a.answer(first, nil)
	isGone := a.conn.ending || first.OfProcess && first.Holder().isClosed
	first.believed = first.losts == 0 && !isGone && first.grant.err == nil && first.Life.State == Held // else its client has unlocked it meanwhile
	p.pause()
	s.apply(p, first, GrantReported)
	return true
}

// acquire waits for its turn on this host, and then for the nodes.
func (s *tableSim) acquire(p *simTask, a *simAsk, l *simLease) error {
	isReady := func() bool { return l.Waiter.Ready() == nil || isClosed(l.Waiter.Ready()) }
	if p.pause(); !isReady() {
		if !a.patient {
			return errSimHeld
		}
		if p.until(func() bool { return isReady() || s.isOver(a) }); !isReady() || s.isOver(a) && s.chance(50) {
			return errSimCancelled
		}
	}
	p.pause()
	if attempt, _ := s.queue.TakeAttempt(&l.Waiter); attempt != nil {
		l.grant = s.begun[attempt]
		s.limitTTL(l)
		return nil
	}
	for !s.free(l) {
		if s.queue.NoteFailure(&l.Waiter, redlock.ErrHeld); !a.patient {
			return errSimHeld
		}
		if p.until(func() bool { return s.free(l) || s.isOver(a) }); s.isOver(a) {
			return errSimCancelled
		}
	}
	l.grant = s.newGrant(l, nil)
	s.limitTTL(l)
	return nil
}

// limitTTL makes a lease with hold=ttl end by itself.
func (s *tableSim) limitTTL(l *simLease) {
	if l.ttl {
		l.grant.until = s.now + simTTL
		l.grant.token.until = l.grant.until
		s.loseAt(l)
	}
}

// loseAt ends a lease that nobody extends at its deadline.
func (s *tableSim) loseAt(l *simLease) {
	grant, until := l.grant, l.grant.until
	s.after(until-s.now, func(p *simTask) {
		if l.grant == grant && grant.err == nil && grant.until == until {
			if grant.err = errSimLost; l.minLeft(s.now) > 0 {
				s.fail("min", "lease %d expires before min= has passed", l.number)
			}
			s.lost(p, l, WasLost)
		}
	})
}

// unlock handles an UNLOCK.
func (s *tableSim) unlock(p *simTask, l *simLease, done func()) {
	defer done()
	left := s.table.CountDown(&l.Lease)
	if left > 0 {
		if r := s.records[l.number]; r != nil {
			r.further = slices.Clone(l.Furthers())
		}
		return
	}
	l.believed = false
	s.apply(p, l, LastUnlock)
}

// resume moves a lease to another connection.
func (s *tableSim) resume(p *simTask, l *simLease, to *simConn) (*simLease, error) {
	p.pause()
	s.trace("lease %d is resumed by connection %d", l.number, to.number)
	l.view = nil
	if l.OfProcess {
		if l.Holder().isClosed {
			return nil, ErrEnded
		}
		if err := s.table.MoveReport(&l.Lease, &to.Client); err != nil {
			return nil, err
		}
	} else {
		replaced, moved, err := s.table.Resume(&l.Lease, &to.Client)
		for _, old := range replaced {
			s.apply(p, simOf(old), Dropped)
		}
		if err != nil {
			return nil, err
		}
		if moved {
			if s.updateOwner(l); l.grant.err == nil && !l.ttl && (l.grant.until == 0 || s.now < l.grant.until) {
				l.grant.until, l.grant.token.until = 0, 0
			}
		}
	}
	if r := s.records[l.number]; r != nil {
		r.conn, r.Conn = to, uint64(to.number)
	}
	p.pause()
	if l.grant.err != nil {
		return nil, l.grant.err
	}
	if l.grant.until != 0 && s.now >= l.grant.until { // redlock is about to report that
		return nil, errSimLost
	}
	if !l.OfProcess && l.Reporter() != &to.Client {
		return nil, ErrEnded
	}
	l.believed, l.view, l.cutUntil = !to.ending && l.Life.State == Held, to, 0
	return l, nil
}

// hangUp closes a connection; cut: the daemon does it.
func (s *tableSim) hangUp(c *simConn, cut bool) {
	if c.ended { // with a restart
		return
	}
	s.trace("connection %d ends, cut: %v", c.number, cut)
	c.ending, c.cut = true, cut
	if cut { // a later daemon must not assume that its client has ended it
		s.opened[uint64(c.number)].Stored = false
	}
	s.spawn(false, func(p *simTask) { s.disconnect(p, c, cut) })
}

// disconnect ends a connection when its requests have ended.
func (s *tableSim) disconnect(p *simTask, c *simConn, cut bool) {
	p.until(func() bool { return c.pending == 0 })
	if !cut {
		delete(s.opened, uint64(c.number))
	}
	p.pause()
	for _, l := range inOrder(s.table.Disconnect(&c.Client)) {
		if cut {
			l.cutUntil = s.now + simTTL
		} else if !l.ttl {
			l.believed = false
		}
		s.clientEnded(p, l, &c.Client, ClientEnd{Outlives: l.ttl, Cut: cut})
	}
	delete(s.opened, uint64(c.number))
	c.ended = true
}

// endProcess ends a process.
func (s *tableSim) endProcess(p *simTask, c *simConn) {
	c.ending = true
	for _, l := range inOrder(s.table.EndProcess(&c.Client)) {
		l.believed = false
		s.clientEnded(p, l, &c.Client, ClientEnd{Process: true})
	}
	c.ended = true
}

func (s *tableSim) clientEnded(p *simTask, l *simLease, client *Client, end ClientEnd) {
	end.Lost, end.Lingers = l.grant.err != nil, l.lingers
	s.perform(p, l, client, Due{Effects: end.Effects()})
	if end.Process && end.Lost {
		s.apply(p, l, ProcessEnded)
	}
}

// check checks what must always hold.
func (s *tableSim) check() {
	for uid := range 2 {
		if got, want := s.table.users[uid], s.counted(uid); got != want {
			s.fail("limits", "counted for user %d: %+v, want %+v", uid, got, want)
		}
	}
	for i, a := range s.leases {
		if !s.works(a) {
			continue
		}
		for _, b := range s.leases[:i] {
			if s.works(b) && Overlap(&a.Waiter, &b.Waiter) && (a.Mode() != b.Mode() || a.Mode().Exclusive()) {
				s.fail("exclusion", "the clients of leases %d and %d work with %v and %v", b.number, a.number, b.Waiter.Names, a.Waiter.Names)
			}
		}
		if a.grant.err == nil && !slices.Contains(s.tokens, a.grant.token) {
			s.fail("exclusion", "the client of lease %d works, and other hosts can get the lock", a.number)
		}
		if c := a.view; c != nil && !c.ending && a.grant.err == nil && a.oks > 0 {
			if _, reports := c.reports[&a.Lease]; !reports && c.Find(a.UID, a.Owner, a.Waiter.Names[0]) != &a.Lease {
				s.fail("found", "the connection of lease %d does not find it", a.number)
			}
			if s.table.ByID(a.grant.id) != &a.Lease {
				s.fail("found", "lease %d is not found by its id", a.number)
			}
		}
	}
	for i, l := range s.order {
		if s.claims[&l.Waiter] || l.Waiter.attempt != nil || l.Waiter.grant == isWithdrawn || l.Waiter.isGranted() || l.grant != nil {
			continue
		}
		full, blocked := map[string]int{}, false
		for _, ahead := range s.order[:i] {
			for _, name := range ahead.Waiter.Names {
				if !slices.Contains(l.Waiter.Names, name) {
					continue
				}
				full[name]++
				blocked = blocked || ahead.Waiter.mode() != l.Waiter.Kind || l.Waiter.Kind.Exclusive() ||
					l.Waiter.Kind.Slots > 0 && full[name] >= int(l.Waiter.Kind.Slots)
			}
		}
		if l.Waiter.isReady == blocked {
			s.fail("order", "waiter %d is ready: %v, and blocked: %v", l.number, l.Waiter.isReady, blocked)
		}
	}
}

// works reports whether a client works with a lease that FORCE did not revoke.
func (s *tableSim) works(l *simLease) bool {
	return l.believed && !l.grant.forced && (l.grant.until == 0 || s.now < l.grant.until) && (l.cutUntil == 0 || s.now < l.cutUntil)
}

// checkOrder checks that a lease overtook no earlier waiter.
func (s *tableSim) checkOrder(l *simLease) {
	for _, ahead := range s.order {
		if ahead == l {
			return
		}
		conflicts := ahead.Waiter.mode() != l.Waiter.Kind || l.Waiter.Kind.Exclusive()
		if conflicts && Overlap(&ahead.Waiter, &l.Waiter) && ahead.Waiter.grant == notGranted && ahead.grant == nil {
			s.fail("overtaken", "waiter %d is overtaken by %d", ahead.number, l.number)
		}
	}
}

// checkTold checks that a connection was told of the losses of its leases.
func (s *tableSim) checkTold(c *simConn) {
	for _, l := range s.leases {
		if l.view == c && l.oks > 0 && l.grant.err == errSimLost && l.Life.State != Kept && l.releases == 0 && l.believed && l.cutUntil == 0 {
			s.fail("told", "the client of lease %d was not told of its loss", l.number)
		}
	}
}

// isIdle reports whether the daemon has nothing to do at this moment.
func (s *tableSim) isIdle() bool {
	return !slices.ContainsFunc(s.tasks, func(p *simTask) bool { return !p.isClient && (p.waits == nil || p.waits()) })
}

// checkEmpty checks that nothing is left when all clients are gone.
func (s *tableSim) checkEmpty() {
	if len(s.tasks) > 0 {
		s.fail("stuck", "%d clients or requests wait for ever", len(s.tasks))
	}
	if n := len(s.table.byID) + len(s.table.passed) + len(s.table.unclaimed); n > 0 {
		for _, l := range s.table.byID {
			s.trace("left: lease %d, life %v, ttl %v, process %v, reporter %v, until %v", simOf(l).number, l.Life, simOf(l).ttl, l.OfProcess, l.reporter != nil, simOf(l).grant.until)
		}
		s.fail("left", "the table has %d leases, %d of a pass, %d unclaimed", len(s.table.byID), len(s.table.passed), len(s.table.unclaimed))
	}
	if n := len(s.queue.names) + len(s.queue.participants) + len(s.queue.waiters.entries) + len(s.order); n > 0 {
		s.fail("left", "the queue has %d names, %d participants, %d waiters; the simulation %d", len(s.queue.names), len(s.queue.participants), len(s.queue.waiters.entries), len(s.order))
	}
	if !s.table.CountsNothing() {
		s.fail("limits", "left: %+v", s.table.users)
	}
	for _, c := range s.conns {
		if n := len(c.leases) + len(c.requests); n > 0 && c.ended {
			s.fail("left", "a client that has ended has %d leases, %d LOCKs", len(c.leases), len(c.requests))
		}
	}
	if len(s.records) > 0 {
		s.fail("records", "%d leases are left in the state file", len(s.records))
	}
	s.tokens = slices.DeleteFunc(s.tokens, func(token *simToken) bool { return token.until != 0 })
	if len(s.tokens) > 0 {
		s.fail("debris", "%d leases are left on the nodes, for example %v", len(s.tokens), s.tokens[0].names)
	}
}

// client is a client with one connection after the other, and perhaps a process that holds leases.
func (s *tableSim) client(p *simTask, number int) {
	c, process := s.connect(), (*simConn)(nil)
	if s.chance(30) {
		process = s.connect()
		process.IsProcess = true
	}
	var mine []*simLease
	var asks []*simAsk
	for range 4 + s.random.IntN(8) {
		p.pause()
		c = s.reconnect(c, asks, mine)
		mine = slices.DeleteFunc(mine, func(l *simLease) bool { return !l.believed })
		switch n := s.random.IntN(100); {
		case n < 40:
			a := s.newAsk(c, process, number)
			asks = append(asks, a)
			s.send(a)
			if s.chance(20) { // again, with the same id=
				again := *a
				again.reentrant = s.chance(50)
				asks = append(asks, &again)
				s.send(&again)
			}
		case n < 60 && len(mine) > 0:
			s.await(p, func(done func()) {
				l := mine[s.random.IntN(len(mine))]
				s.spawn(false, func(p *simTask) { s.unlock(p, l, done) })
			})
		case n < 70 && len(mine) > 0: // RESUME on another connection; the previous one ends before or after
			l, next, previous := mine[s.random.IntN(len(mine))], s.connect(), c
			next.pending++
			first, cut := s.chance(50), s.chance(50)
			if first {
				s.hangUp(previous, cut)
			}
			s.await(p, func(done func()) {
				s.spawn(false, func(p *simTask) {
					defer done()
					_, _ = s.resume(p, l, next)
					next.pending--
				})
			})
			if !first {
				s.hangUp(previous, cut)
			}
			c = next
		case n < 76 && len(mine) > 0:
			s.lose(mine[s.random.IntN(len(mine))], s.chance(50))
		case n < 80:
			for _, a := range asks {
				a.cancelled = a.cancelled || s.chance(50)
			}
		case n < 90:
			wake := s.now + time.Duration(s.random.IntN(30))*time.Millisecond
			s.after(wake-s.now, nil)
			p.until(func() bool { return s.now >= wake })
		default:
			wake := s.now + 20*time.Millisecond
			s.after(wake-s.now, nil)
			p.until(func() bool {
				return s.now >= wake || !slices.ContainsFunc(asks, func(a *simAsk) bool { return !a.answered })
			})
		}
		asks = slices.DeleteFunc(asks, func(a *simAsk) bool {
			if a.answered && a.err == nil {
				mine = append(mine, a.lease)
			}
			return a.answered
		})
	}
	if s.chance(50) {
		p.until(s.isIdle)
		s.checkTold(c)
	}
	c = s.reconnect(c, asks, mine)
	cut := s.chance(20)
	s.hangUp(c, cut)
	if process != nil {
		process.ending = true
		s.spawn(false, func(p *simTask) { s.endProcess(p, process) })
	}
}

// reconnect returns c, or a new connection if a restart broke c. The client asks again what was not
// answered, with the same id=, and resumes its leases, or gives up.
func (s *tableSim) reconnect(c *simConn, asks []*simAsk, mine []*simLease) *simConn {
	if !c.broken {
		return c
	}
	next := s.connect()
	for _, a := range asks {
		if a.answered || a.conn != c {
			continue
		}
		if a.conn, a.isAllowed = next, false; s.chance(80) {
			s.send(a)
			continue
		}
		next.pending++
		a.answer(nil, errSimCancelled)
	}
	for _, l := range mine {
		switch {
		case l.OfProcess || !l.believed || l.ttl:
		case s.chance(70):
			next.pending++
			s.spawn(false, func(p *simTask) {
				defer func() { next.pending-- }()
				if _, err := s.resume(p, l, next); err != nil {
					l.believed = false
				}
			})
		default:
			l.believed = false
		}
	}
	return next
}

// restart kills the daemon, and starts it again with what the state file and the nodes have.
func (s *tableSim) restart() {
	s.trace("restart")
	s.started++
	if s.calm = 150; s.chance(30) {
		s.calm = 10
	}
	s.tasks = slices.DeleteFunc(s.tasks, func(p *simTask) bool {
		if !p.isClient {
			p.stop()
		}
		return !p.isClient
	})
	s.timers = slices.DeleteFunc(s.timers, func(timer simTimer) bool { return timer.run != nil })
	s.table, s.queue, s.order = NewTable(), New(), nil
	s.table.SetLimits(s.bounds)
	s.claims, s.begun = map[*Waiter]bool{}, map[*redlock.PendingAttempt]*simGrant{}
	s.counts = map[*simLease]bool{}
	s.asks = slices.DeleteFunc(s.asks, func(a *simAsk) bool { return a.conn.ending })
	restart := &Restart{Complete: s.chance(85), Marked: s.chance(80)}
	for _, c := range s.conns {
		c.Client, c.pending = Client{Of: c, IsProcess: c.IsProcess}, 0
		if c.ended {
			continue
		}
		stays := c.IsProcess || restart.Complete && restart.Marked && s.opened[uint64(c.number)] != nil && s.opened[uint64(c.number)].Stored
		c.broken = !c.ending && !stays
		c.ended = c.ending || c.broken
	}
	restart.Conns = s.recordedConns(restart)
	s.spawn(false, func(p *simTask) { s.restore(p, restart) })
	s.boot = s.tasks[len(s.tasks)-1]
}

// recordedConns returns the connections in the state file, with those that continue. If records are
// missing, the daemon ends all that the service manager has.
func (s *tableSim) recordedConns(restart *Restart) map[uint64]RecordedConn {
	all := map[uint64]RecordedConn{}
	for _, c := range s.conns {
		recorded := s.opened[uint64(c.number)]
		if recorded == nil || c.IsProcess {
			continue
		}
		switch {
		case c.broken && restart.Marked:
			recorded.Stored = false
		case c.cut && !restart.Complete && s.chance(50):
			recorded.Stored = true // the record of the cut is missing
		}
		if all[uint64(c.number)] = *recorded; !c.ended {
			all[uint64(c.number)] = RecordedConn{Stored: true, Client: &c.Client}
		}
	}
	return all
}

// restore does what package session does at its start.
func (s *tableSim) restore(p *simTask, restart *Restart) {
	var all, held []*Recorded
	var continued []*simRecord
	numbers := slices.Sorted(maps.Keys(s.records))
	for _, number := range numbers {
		r := s.records[number]
		r.MinLeft = r.l.min > s.now-r.grant.since
		r.IsFree, r.IsUnclaimed = false, false
		all = append(all, &r.Recorded)
	}
	for i, fate := range restart.Fates(all) {
		r := s.records[numbers[i]]
		switch fate {
		case Continues:
			continued, held = append(continued, r), append(held, &r.Recorded)
			s.restoreLease(p, restart, r.l, r)
			continue
		case Abandoned:
			if s.drop(r.grant.token); r.Released && r.grant.err == nil {
				s.endGrant(r.l)
			}
		case WasPassed:
			if !restart.Complete && r.grant.token.until == 0 {
				r.grant.token.until = s.now + simTTL
			}
		}
		delete(s.records, numbers[i])
	}
	ended, unstored := restart.EndedConns(held)
	for _, number := range ended {
		delete(s.opened, number)
	}
	for _, number := range unstored {
		s.opened[number].Stored = false
	}
	for _, r := range continued {
		s.perform(p, r.l, r.l.Holder(), s.table.Settle(&r.l.Lease, &r.Recorded))
	}
	for _, a := range slices.Clone(s.asks) {
		if !a.conn.ended {
			a.conn.pending++
			a.isAllowed = true
			s.spawn(false, func(p *simTask) { s.lock(p, a) })
		}
	}
}

// restoreLease continues a lease.
func (s *tableSim) restoreLease(p *simTask, restart *Restart, l *simLease, r *simRecord) {
	names, kind := slices.Clone(l.Waiter.Names), l.Waiter.Kind
	l.Lease = Lease{Requester: l.Requester, OfProcess: l.OfProcess}
	l.Init(names, kind, false, l)
	l.isDone, l.failure, l.refused, l.leaves, l.heldTimes = true, nil, false, 0, 0
	if l.oks = max(l.oks, 1); !r.Reported {
		l.losts = 0
	}
	l.SetFurthers(slices.Clone(r.further))
	var process *Client
	if r.process != nil && !r.process.ended {
		process = &r.process.Client
	}
	extended := restart.Claim(&l.Lease, &r.Recorded, process, process == nil, !l.ttl)
	if r.OfProcess && process == nil || r.NeedsConn && r.conn.ending && !r.conn.cut {
		l.believed = false
	}
	if l.view = nil; l.Reporter() == &r.conn.Client {
		l.view = r.conn
	}
	replaced := s.table.Restore(&l.Lease, &r.Recorded)
	for _, old := range replaced {
		s.apply(p, simOf(old), Dropped)
	}
	if !r.Lost {
		s.counts[l] = false
		s.queue.Restore(&l.Waiter, r.Kept)
		s.order = append(s.order, l)
	}
	switch {
	case l.grant.err != nil && !r.Lost:
		s.spawn(false, func(p *simTask) { s.lost(p, l, WasLost) })
	case l.grant.err != nil:
	case extended:
		l.grant.until, l.grant.token.until = 0, 0
	default:
		if l.grant.until == 0 {
			l.grant.until = s.now + simTTL
		}
		l.grant.token.until = l.grant.until
		s.loseAt(l)
	}
}

// await waits for what begin starts.
func (s *tableSim) await(p *simTask, begin func(done func())) {
	isDone, started := false, s.started
	begin(func() { isDone = true })
	p.until(func() bool { return isDone || s.started != started })
}

func (s *tableSim) send(a *simAsk) {
	a.conn.pending++
	s.asks = append(s.asks, a)
	s.after(a.deadline-s.now, nil)
	s.spawn(false, func(p *simTask) { s.lock(p, a) })
}

func (s *tableSim) newAsk(c, process *simConn, client int) *simAsk {
	a := &simAsk{s: s, conn: c, uid: client % 2, patient: s.chance(80), deadline: s.now + time.Duration(10+s.random.IntN(300))*time.Millisecond, lingers: s.chance(20), reentrant: s.chance(30)}
	all := []string{"a", "b", "c"}
	first := s.random.IntN(len(all))
	a.names = all[first : first+1]
	switch s.random.IntN(6) {
	case 0:
		a.names = all[:2]
	case 1:
		a.kind = Kind{Shared: true}
	case 2:
		a.kind = Kind{Slots: 2}
	}
	if s.chance(70) {
		a.id = fmt.Sprint("client ", client, " id ", s.random.IntN(2))
	}
	switch n := s.random.IntN(100); {
	case n < 20 && process != nil:
		a.process = process
	case n < 35:
		a.ttl = true
	case n < 50:
		a.min = time.Duration(s.random.IntN(40)) * time.Millisecond
	}
	return a
}

// simulate runs the simulation of a seed, and returns what a check found, or nil.
func simulate(seed uint64) (found *finding) {
	s := &tableSim{
		random: rand.New(rand.NewPCG(seed, 0)), table: NewTable(), queue: New(),
		counts: map[*simLease]bool{}, claims: map[*Waiter]bool{}, begun: map[*redlock.PendingAttempt]*simGrant{}, records: map[int]*simRecord{}, opened: map[uint64]*RecordedConn{},
	}
	defer func() {
		for _, p := range s.tasks {
			p.stop()
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*finding)
			if !ok {
				f = &finding{"panic", fmt.Sprint(r)}
			}
			found = f
		}
	}()
	if seed%4 == 3 { // the others need not differ from each other by them
		bounds := rand.New(rand.NewPCG(seed, 1))
		s.bounds = Limits{Leases: 2 + bounds.IntN(4), Waiters: 1 + bounds.IntN(3)}
		s.table.SetLimits(s.bounds)
	}
	for i := range 2 + s.random.IntN(3) {
		s.spawn(true, func(p *simTask) { s.client(p, i) })
	}
	s.left, s.calm, s.haste = s.random.IntN(4), 150, 2
	if s.chance(30) {
		s.haste = 20
	}
	s.run()
	s.checkEmpty()
	return nil
}
