package simulation

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// storedToken is a token on a node.
type storedToken struct{ key, id string }

// Lists makes one host after another list all locks, repeatedly (redlock list --all).
var Lists = &Activity{start: func(w *world, ctx context.Context) {
	random := w.plan.stream(streamLists)
	w.clients.Go(func() {
		for w.work.Err() == nil {
			time.Sleep(below(random, 150*time.Millisecond))
			if q, _ := pick(random, w.hosts...).daemon(); q != nil {
				w.list(ctx, random, q)
			}
		}
	})
}}

// list lists all locks that the nodes store, page by page, and checks the result.
func (w *world) list(ctx context.Context, random *rand.Rand, q *redlock.Quorum) {
	walk := w.beginWalk()
	locks, err := w.pages(ctx, random, q)
	walk.end()
	if err != nil {
		return // too few nodes answered
	}
	w.record.count("list")
	w.record.checkMissing(walk, locks)
	for _, lock := range locks {
		w.record.checkListed(walk, lock)
	}
}

// pages reads all pages. Clients and faults continue between them.
func (w *world) pages(ctx context.Context, random *rand.Rand, q *redlock.Quorum) (locks []redlock.StoredLock, err error) {
	for cursor := ""; ; {
		page, err := q.Scan(ctx, cursor)
		if err != nil {
			return nil, err
		}
		locks = append(locks, page.Locks...)
		if cursor = page.Next; cursor == "" {
			return locks, nil
		}
		time.Sleep(below(random, pick(random, 5*time.Millisecond, 80*time.Millisecond)))
	}
}

// walk records what the nodes stored while all locks were listed.
type walk struct {
	w     *world
	began time.Duration
	nodes []*listed
}

// listed is what one node stored during the walk.
type listed struct {
	node *simNode
	lost bool // the node lost its data meanwhile, or got data from elsewhere

	mu  sync.Mutex           // guards what follows
	had map[storedToken]bool // the tokens that it had at the beginning, or was asked to set since
	set map[storedToken]bool // those of had that it was asked to set
}

func (w *world) beginWalk() *walk {
	k := &walk{w: w, began: w.record.now()}
	for _, n := range w.nodes {
		l := &listed{node: n, had: n.stored(), set: map[storedToken]bool{}}
		see := l.note
		n.onCommand.Store(&see)
		k.nodes = append(k.nodes, l)
	}
	return k
}

func (k *walk) end() {
	for _, l := range k.nodes {
		l.node.onCommand.Store(nil)
		l.lost = k.w.faults.lossOf(l.node) >= k.began
	}
}

// stored returns the tokens that the node has now.
func (n *simNode) stored() map[storedToken]bool {
	has := map[storedToken]bool{}
	n.Tokens(func(key, token string) { has[storedToken{key, idOf(token)}] = true })
	return has
}

// note records the tokens that a call may set.
func (l *listed) note(c redlock.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	letters, args := operationsOf(c)
	for i, letter := range letters {
		token := ""
		switch letter {
		case 'a', 'n', 's', 'p', 'q':
			token = args[0]
		case 'h', 'u':
			token = args[1]
		}
		if token != "" {
			t := storedToken{c[4+i], idOf(token)}
			l.had[t], l.set[t] = true, true
		}
		args = args[argumentsOf[letter]:]
	}
}

// kept returns the tokens that the node has had since the beginning of the walk.
func (l *listed) kept() (tokens []storedToken) {
	now := l.node.stored()
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.had {
		if now[t] && !l.set[t] && !l.lost {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// mayHaveHad reports whether the node may have had a token at some time in the walk.
func (l *listed) mayHaveHad(t storedToken) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.had[t] || l.lost
}

func (k *walk) quorum() int { return len(k.nodes)/2 + 1 }

// mayHaveHad returns how many nodes may have had a token at some time in the walk.
func (k *walk) mayHaveHad(t storedToken) (nodes int) {
	for _, l := range k.nodes {
		if l.mayHaveHad(t) {
			nodes++
		}
	}
	return nodes
}

// checkMissing checks that the list contains each lock that a quorum of nodes had all the time,
// with its holder.
func (r *recorder) checkMissing(k *walk, locks []redlock.StoredLock) {
	nodes := map[storedToken]int{}
	for _, l := range k.nodes {
		for _, t := range l.kept() {
			nodes[t]++
		}
	}
	found := map[storedToken]bool{}
	for _, lock := range locks {
		for _, h := range lock.Holdings {
			found[storedToken{redlock.DefaultPrefix + lock.Name, h.ID()}] = true
		}
	}
	for t, n := range nodes {
		if n >= k.quorum() && !found[t] && !strings.HasPrefix(t.id, foreignToken) {
			r.violated("list", "%s was on %d of %d nodes since %s with the token %s, but the list does not show that",
				t.key, n, len(k.nodes), instant(k.began), t.id)
		}
	}
}

// checkListed checks that a quorum of nodes had, or may have had, each lock that is listed as held.
func (r *recorder) checkListed(k *walk, lock redlock.StoredLock) {
	for _, h := range lock.Holdings {
		if h.Waiting || h.ID() == "" {
			continue
		}
		had := k.mayHaveHad(storedToken{redlock.DefaultPrefix + lock.Name, h.ID()})
		if silent := len(k.nodes) - h.Nodes; had < h.Held || had+silent < k.quorum() {
			r.violated("list", "%s is listed as held by %v on %d of %d nodes, but only %d had that token since %s",
				lock.Name, h.Holder, h.Held, h.Nodes, had, instant(k.began))
		}
	}
}

// violated records a promise that is broken now.
func (r *recorder) violated(check, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.violate(check, r.now(), format, args...)
}
