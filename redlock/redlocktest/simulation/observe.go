package simulation

import (
	"context"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// releases holds the tokens that a node has released or forced away. None of them may be on the
// node later.
type releases struct {
	mu  sync.Mutex         // guards what follows
	ids map[[2]string]bool // by key and token
}

func (r *releases) add(key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[[2]string{key, id}] = true
}

func (r *releases) has(key, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[[2]string{key, id}]
}

// forget clears the set, because the node now has foreign or older data.
func (r *releases) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ids)
}

// confirmations holds when a node last granted or confirmed each token.
type confirmations struct {
	mu   sync.Mutex               // guards what follows
	last map[string]time.Duration // by the token's id
}

func (c *confirmations) add(id string, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[id] = now
}

func (c *confirmations) of(id string) (last time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok = c.last[id]
	return last, ok
}

// executed records a command that a node has executed.
func (w *world) executed(n *simNode, c redlock.Command, reply redlock.Reply) {
	if w.plan.Commands {
		w.record.command(n.Name(), c)
	}
	if see := n.onCommand.Load(); see != nil {
		(*see)(c)
	}
	w.turns.executed(n, c)
	w.tracer.executed(n, c, reply)
	for i, op := range operations(c) {
		switch answer := reply.Array; {
		case i >= len(answer) || answer[i].Err != nil:
		case op.letter == 'a' || op.letter == 'v':
			if answer[i].Int > 0 || op.letter == 'a' && answer[i].Int < 0 { // negative: another client waits
				n.confirmations.add(idOf(op.token), w.record.now())
			}
		case op.letter == 'g':
			if answer[i].Int == 1 {
				n.downgrades.add(idOf(op.token), w.record.now())
			}
		case op.letter == 'e':
			if _, shared := n.downgrades.of(idOf(op.token)); shared {
				w.record.noteExclusive(n, idOf(op.token), "extend")
			}
		case op.letter == 'p':
			if answer[i].Int == 1 && !w.plan.Steps { // after a clock step it may come late
				w.record.noteExclusive(n, idOf(op.token), "repair")
			}
		case op.letter == 'x':
			w.record.forced(idOf(op.token))
			if answer[i].Int == 1 {
				n.releases.add(op.key, idOf(op.token))
			}
		case op.letter == 'h' && len(answer[i].Array) > 1: // refused: another token holds the lock
		case op.letter == 'h':
			n.confirmations.add(idOf(op.newToken), w.record.now())
			n.releases.add(op.key, idOf(op.token))
		case op.letter == 'u':
			if answer[i].Int == 1 {
				w.record.exchanged(idOf(op.newToken))
				n.releases.add(op.key, idOf(op.token))
			}
		case op.letter == 'r':
			n.releases.add(op.key, idOf(op.token))
		}
	}
}

// idOf returns the part of a token that makes it unique.
func idOf(token string) string {
	id, rest, _ := strings.Cut(token, " ")
	if _, err := strconv.Atoi(id); err == nil { // the slot of a semaphore
		id, _, _ = strings.Cut(rest, " ")
	}
	return id
}

type operation struct {
	letter     rune
	key, token string
	newToken   string // of a hand-over or an exchange
}

// observed lists the opcodes of the operations that acquire, confirm, extend, exchange, repair or
// end a lock.
const observed = "avrxhegpu"

// operations returns the observed operations of a call of ballot.lua, with their positions.
func operations(c redlock.Command) iter.Seq2[int, operation] {
	return func(yield func(int, operation) bool) {
		letters, args := operationsOf(c)
		if !strings.ContainsAny(letters, observed) {
			return
		}
		for i, letter := range letters {
			if strings.ContainsRune(observed, letter) {
				o := operation{letter: letter, key: c[4+i], token: args[0]}
				if letter == 'h' || letter == 'u' {
					o.newToken = args[1]
				}
				if !yield(i, o) {
					return
				}
			}
			args = args[argumentsOf[letter]:]
		}
	}
}

// argumentsOf is the number of arguments of each operation; operations without any are missing.
var argumentsOf = map[rune]int{
	'a': 2, 'n': 1, 's': 3, 'h': 3, 'e': 2, 'g': 2, 'u': 3, 'v': 2, 'r': 1, 'w': 1, 'f': 1, 'p': 2, 'q': 3, 'z': 2, 'x': 2, 'i': 2, 'k': 2, 'm': 2, 'd': 1, 'y': 3,
}

// operationsOf returns the opcodes of a call of ballot.lua, and the arguments of its
// operations.
func operationsOf(c redlock.Command) (letters string, args []string) {
	if redlocktest.ScriptName(c) != "ballot" {
		return "", nil
	}
	keys, _ := strconv.Atoi(c[2])
	return c[3+keys+2], c[3+keys+4:]
}

// wakeUps checks, after all faults, that a waiter is called when another host releases the lock. The
// release may come at about the time of the refusal.
func (w *world) wakeUps(ctx context.Context) {
	random := w.plan.stream(streamWake)
	for i, h := range w.hosts {
		w.wakeUp(ctx, random, h, w.hosts[(i+1)%len(w.hosts)], w.locks[0])
	}
}

const (
	untilRefused = 20 * time.Millisecond
	// wokenWithin allows for the rest of that attempt, the next attempt, and the time between them:
	// at most node_timeout. A waiter that is not called asks when the holder's lease would end.
	wokenWithin = 200 * time.Millisecond
)

// wakeUp makes one host release a lock at about the time when another host begins to wait for it.
func (w *world) wakeUp(ctx context.Context, random *rand.Rand, holder, waiter *host, lock string) {
	q, life := holder.daemon()
	l, g := w.take(ctx, q, holder, life, redlock.Request{Name: lock, TTL: finalTTL, Wait: finalWait})
	if l == nil {
		return
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		q, life := waiter.daemon()
		r := redlock.Request{Name: lock, TTL: simulatedMaxTTL, Wait: finalTTL, Held: true}
		if l, woken := w.take(ctx, q, waiter, life, r); l != nil {
			woken.releasing()
			_ = l.Release(ctx)
			w.record.woken(g, woken)
		}
	})
	time.Sleep(below(random, untilRefused+5*time.Millisecond))
	g.releasing()
	_ = l.Release(ctx)
	waits.Wait()
}

// take acquires a lock that becomes free within the wait of the request.
func (w *world) take(ctx context.Context, q *redlock.Quorum, h *host, life int, r redlock.Request) (*redlock.Lease, *Grant) {
	l, record, err := w.ask(ctx, q, h, life, r)
	if err != nil {
		w.record.stuck(record, err)
		return nil, nil
	}
	return l, record.Grant
}

// ask calls Acquire once, and records what it returned.
func (w *world) ask(ctx context.Context, q *redlock.Quorum, h *host, life int, r redlock.Request) (*redlock.Lease, *Request, error) {
	record := w.record.request(h, life, "calm", &r)
	r.Holder, r.Failed = record.holder(), record.failed
	l, err := q.Acquire(ctx, r)
	if err != nil {
		record.ended(err)
		return nil, record, err
	}
	w.lookAtGrant(record.granted(l))
	return l, record, nil
}

// woken records that a waiter was granted a lock after its holder released it.
func (r *recorder) woken(before, after *Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Wakes = append(r.report.Wakes, Wake{Released: before, Acquired: after})
}

// Wake is a lock that was released while another host waited for it.
type Wake struct{ Released, Acquired *Grant }

// checkWakes checks that waiters are woken.
func (r *Report) checkWakes() {
	for _, wake := range r.Wakes {
		if took := wake.Acquired.At - wake.Released.Releasing; took > wokenWithin {
			r.violate("wake", wake.Acquired.At, "%s was released (lease %d), and its waiter acquired it only %v later (lease %d)", wake.Acquired.Lock, wake.Released.N, took, wake.Acquired.N)
		}
	}
}

// streak counts consecutive grants of a lock to clients of one host, as a daemon does.
type streak struct {
	began  time.Duration
	grants int
}

// Bounds of a streak while other hosts wait.
const (
	maxStreak     = 16
	maxStreakTime = 100 * time.Millisecond
)

// next counts a lease, and reports whether another host must get the lock now.
func (s *streak) next(h *host, lease *redlock.Lease) (yields bool) {
	if s.grants == 0 {
		s.began = h.w.record.now()
	}
	if !(lease.Passed() && h.w.plan.Table == IgnorePasses) {
		s.grants++
	} else {
		s.began = h.w.record.now()
	}
	return lease.Wanted() && (s.grants >= maxStreak || h.w.record.now()-s.began >= maxStreakTime)
}

// passRepeatedly checks, after all faults, that a host that keeps passing a lock on lets another host
// have it.
func (w *world) passRepeatedly(ctx context.Context) {
	random := w.plan.stream(streamPasses)
	for i, h := range w.hosts {
		w.passAndWait(ctx, h, w.hosts[(i+1)%len(w.hosts)], w.locks[0], below(random, 50*time.Millisecond))
	}
}

// passAndWait makes one host pass a lock on. Another host begins to wait for it later.
func (w *world) passAndWait(ctx context.Context, holder, waiter *host, lock string, after time.Duration) {
	q, life := holder.daemon()
	r := redlock.Request{Name: lock, TTL: finalTTL, Wait: finalWait, Keep: true, Block: 64}
	l, g := w.take(ctx, q, holder, life, r)
	if l == nil {
		return
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		time.Sleep(after)
		q, life := waiter.daemon()
		r := redlock.Request{Name: lock, TTL: simulatedMaxTTL, Wait: 2 * passesLast, Held: true}
		if l, taken := w.take(ctx, q, waiter, life, r); l != nil {
			taken.releasing()
			_ = l.Release(ctx)
			w.record.noteOvertaken(taken)
		}
	})
	var row streak
	for end := w.record.now() + passesLast; w.record.now() < end && !row.next(holder, l); {
		time.Sleep(2*time.Millisecond + 3)
		next := w.passTo(ctx, holder, life, l, g, r)
		if next == nil {
			break
		}
		l, g = next.lease, next
	}
	g.releasing()
	_ = l.Release(ctx)
	waits.Wait()
}

// passesLast is how long a host passes a lock on if no other host waits.
const passesLast = 800 * time.Millisecond

// passTo hands the lock over to the next client of the host.
func (w *world) passTo(ctx context.Context, h *host, life int, l *redlock.Lease, g *Grant, r redlock.Request) *Grant {
	record := w.record.request(h, life, "calm", &r)
	r.Holder, r.Failed = record.holder(), record.failed
	r.BeforeAttempt = func(token redlock.Record) {
		if token.Grant != "" {
			record.passed(token)
		}
	}
	g.releasing()
	_, pending, err := l.HandOver(r)
	if err != nil {
		record.ended(err)
		return nil
	}
	r.Pending = pending
	q, _ := h.daemon()
	next, err := q.Acquire(ctx, r)
	if err != nil {
		record.ended(err)
		w.record.stuck(record, err)
		return nil
	}
	granted := record.granted(next)
	w.lookAtGrant(granted)
	return granted
}

// noteOvertaken records that a host got a lock that another host was passing on.
func (r *recorder) noteOvertaken(g *Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Overtaken = append(r.report.Overtaken, g)
}

// longestPassedOver is how long a host waits at most while another host passes the lock on: until a
// confirmation shows that it waits, and until it is woken.
const longestPassedOver = redlock.PassWindow + wokenWithin

// checkPassedOver checks that no host waits longer than the bound while another passes the lock on.
func (r *Report) checkPassedOver() {
	for _, g := range r.Overtaken {
		if took := g.At - g.Request.Began; took > longestPassedOver {
			r.violate("starvation", g.At, "%s waited for %s for %v (lease %d) while another host passed it on", g.host.name, g.Lock, took, g.N)
		}
	}
}

// nameHolders checks, after all faults, that the nodes soon name the client that got a lock by a
// pass.
func (w *world) nameHolders(ctx context.Context) {
	if !w.plan.Exchanges {
		return
	}
	for i, h := range w.hosts {
		q, life := h.daemon()
		r := redlock.Request{Name: w.locks[0], TTL: finalTTL, Wait: finalWait, Keep: true, Block: 64}
		l, g := w.take(ctx, q, h, life, r)
		if l == nil {
			continue
		}
		next := w.passTo(ctx, h, life, l, g, r)
		if next == nil {
			continue
		}
		time.Sleep(redlock.PassWindow + nodeTimeout)
		other, _ := w.hosts[(i+1)%len(w.hosts)].daemon()
		if shown, err := other.Who(ctx, w.locks[0]); err != nil || len(shown) != 1 || shown[0].Holder.PID != next.N {
			w.record.misnamed(next, shown, err)
		}
		next.releasing()
		_ = next.lease.Release(ctx)
	}
}
