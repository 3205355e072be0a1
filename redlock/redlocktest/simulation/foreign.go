package simulation

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// foreignToken begins the values of another Redlock client.
const foreignToken = "foreign:"

// foreigner is another Redlock client, which knows plain keys and nothing else. It
// asks one node after the other, and has no network in between: what it is for is
// that it and ours keep each other out.
type foreigner struct {
	w      *world
	random *rand.Rand
}

// startForeigner has one at work in plans in which nodes keep what they hold and
// clocks go as they should: it knows of no quarantine.
func (w *world) startForeigner() {
	if w.plan.Loss || w.plan.Steps || w.plan.Fresh {
		return
	}
	f := &foreigner{w: w, random: w.plan.stream(streamForeigner)}
	w.clients.Go(f.run)
}

func (f *foreigner) run() {
	for n := 0; f.w.work.Err() == nil; n++ {
		time.Sleep(below(f.random, 400*time.Millisecond))
		f.turn(pick(f.random, f.w.locks...), foreignToken+strconv.Itoa(n))
	}
}

// turn tries to take a lock once, uses it and gives it back.
func (f *foreigner) turn(lock, token string) {
	ttl := below(f.random, 500*time.Millisecond) + redlock.MinTTL
	wish := redlock.Request{Name: lock, TTL: ttl.Truncate(time.Millisecond)}
	h := f.w.hosts[0]
	q := f.w.record.request(h, 0, "foreign", &wish)
	votes := 0
	for _, n := range f.w.nodes {
		if n.grantsForeign(redlock.DefaultPrefix+lock, token, wish.TTL) {
			votes++
		}
	}
	if votes <= len(f.w.nodes)/2 {
		f.giveBack(lock, token)
		q.ended(fmt.Errorf("%d votes", votes))
		return
	}
	g := q.grantedElsewhere(token, wish.TTL-wish.TTL/50-2*time.Millisecond)
	f.w.record.count("foreign lock")
	time.Sleep(below(f.random, wish.TTL))
	g.releasing()
	f.giveBack(lock, token)
}

func (n *simNode) grantsForeign(key, token string, ttl time.Duration) bool {
	if n.Makes(redlocktest.HideKind) && redlocktest.IsKind(n.Get(key)) {
		return true // it would find nothing there
	}
	reply := n.Do("SET", key, token, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	return reply.Err == nil && !reply.Nil
}

func (f *foreigner) giveBack(lock, token string) {
	for _, n := range f.w.nodes {
		if n.Get(redlock.DefaultPrefix+lock) == token {
			n.Do("DEL", redlock.DefaultPrefix+lock)
		}
	}
}

// grantedElsewhere: another client has the lock from the instant on at which it
// asked.
func (q *Request) grantedElsewhere(id string, validity time.Duration) *Grant {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &Grant{
		Request: q, ID: id, Began: q.Began, At: r.now(), Nodes: 1, Held: 1,
		Releasing: never, GaveUp: never, Untold: never,
		Claims: []Claim{{q.Began, r.now(), q.Began + validity}},
	}
	q.Grant = g
	r.report.Grants = append(r.report.Grants, g)
	r.add(g.line("granted", "to another client"))
	return g
}
