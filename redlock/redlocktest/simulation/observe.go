package simulation

import (
	"context"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// releases holds the tokens that a node has released or forced away. None of them may be
// there later.
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

// forget clears the set: the node has data from elsewhere, or earlier data.
func (r *releases) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ids)
}

// executed records each command that a node has executed.
func (w *world) executed(n *simNode, c redlock.Command, reply redlock.Reply) {
	if w.plan.Commands {
		w.record.command(n.Name(), c)
	}
	for i, op := range endingOperations(c) {
		switch answer := reply.Array; {
		case i >= len(answer) || answer[i].Err != nil:
		case op.letter == 'x':
			w.record.forced(idOf(op.token))
			if answer[i].Int == 1 {
				n.releases.add(op.key, idOf(op.token))
			}
		case op.letter == 'h' && len(answer[i].Array) > 1: // refused: another token holds it
		default:
			n.releases.add(op.key, idOf(op.token))
		}
	}
}

// idOf returns the part of a token that makes it unique.
func idOf(token string) string {
	id, rest, _ := strings.Cut(token, " ")
	if _, err := strconv.Atoi(id); err == nil { // the place of a semaphore
		id, _, _ = strings.Cut(rest, " ")
	}
	return id
}

// endingOperation is a release, a hand-over, or a FORCE.
type endingOperation struct {
	letter     rune
	key, token string
}

// endingOperations returns the ending operations of a call of ballot.lua, with their
// positions in it. The token is the first of their arguments.
func endingOperations(c redlock.Command) iter.Seq2[int, endingOperation] {
	return func(yield func(int, endingOperation) bool) {
		letters, args := operationsOf(c)
		for i, letter := range letters {
			lower := unicode.ToLower(letter)
			words := wordsOf[lower]
			if lower != letter {
				words++
			}
			if strings.ContainsRune("rxh", lower) && !yield(i, endingOperation{lower, c[4+i], args[0]}) {
				return
			}
			args = args[words:]
		}
	}
}

// wordsOf is the number of arguments of each operation, without a ttl that also holds for
// later ones.
var wordsOf = map[rune]int{
	'a': 1, 'n': 1, 's': 2, 'h': 2, 'e': 1, 'r': 1, 'f': 1, 'p': 2, 'q': 3, 'x': 2, 'i': 2, 'k': 2, 'm': 2, 'd': 1,
}

// operationsOf returns the opcodes of a call of ballot.lua that ends something, and the
// arguments of its operations.
func operationsOf(c redlock.Command) (letters string, args []string) {
	if redlocktest.ScriptName(c) != "ballot" {
		return "", nil
	}
	keys, _ := strconv.Atoi(c[2])
	letters, args = c[3+keys+2], c[3+keys+4:]
	if !strings.ContainsAny(letters, "rxhH") {
		return "", nil
	}
	return letters, args
}

// wakeUps checks, while all is well, that a waiter is woken when another host releases the
// lock. The release may come between the refusal and the start of tracking. The nodes
// execute those one after the other here, and serve other clients in between.
func (w *world) wakeUps(ctx context.Context) {
	for _, n := range w.nodes {
		n.Between(func(next redlock.Command) time.Duration {
			if next[0] == "CLIENT" && next[1] == "CACHING" {
				return untilArmed
			}
			return 0
		})
		defer n.Between(nil)
	}
	random := w.plan.stream(streamWake)
	for i, h := range w.hosts {
		w.wakeUp(ctx, random, h, w.hosts[(i+1)%len(w.hosts)], w.locks[0])
	}
}

const (
	untilArmed = 20 * time.Millisecond
	// wokenWithin is the rest of that attempt, another attempt, and the time between them:
	// node_timeout at most. A waiter that is not woken retries after a sixth of its ttl,
	// 250 ms at the soonest.
	wokenWithin = 200 * time.Millisecond
)

// wakeUp makes one host release a lock at about the time at which another begins to wait
// for it.
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
	time.Sleep(below(random, untilArmed+5*time.Millisecond))
	g.releasing()
	_ = l.Release(ctx)
	waits.Wait()
}

// take acquires a lock that becomes free, sooner or later.
func (w *world) take(ctx context.Context, q *redlock.Quorum, h *host, life int, r redlock.Request) (*redlock.Lease, *Grant) {
	record := w.record.request(h, life, "calm", &r)
	r.Holder, r.Failed = record.holder(), record.failed
	l, err := q.Acquire(ctx, r)
	if err != nil {
		record.ended(err)
		w.record.stuck(record, err)
		return nil, nil
	}
	g := record.granted(l)
	w.lookAtGrant(g)
	return l, g
}

// woken records the release of a lock that a client waited for, and the grant to that
// client.
func (r *chronicle) woken(before, after *Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Wakes = append(r.report.Wakes, Wake{Given: before, Taken: after})
}

// Wake is a lock that was released while another host waited for it.
type Wake struct{ Given, Taken *Grant }

// checkWakes checks that waiters are woken.
func (r *Report) checkWakes() {
	for _, wake := range r.Wakes {
		if took := wake.Taken.At - wake.Given.Releasing; took > wokenWithin {
			r.violate("wake", wake.Taken.At, "%s was given back (lease %d), and who waited for it had it %v later (lease %d)", wake.Taken.Lock, wake.Given.N, took, wake.Taken.N)
		}
	}
}
