package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A lease stays taken until the instant of Outlast, although its process ends, and not for longer
// than MaxTTL. Its ttl stays the same, and later extensions do not shorten it. Guards Quorum.Outlast:
// the bounds of ttl.
func TestOutlast(t *testing.T) {
	const maxTTL, ttl = 30 * time.Second, 2 * time.Second
	for what, c := range map[string]struct{ least, taken time.Duration }{
		"a while":             {10 * time.Second, 10 * time.Second},
		"longer than MaxTTL":  {time.Hour, maxTTL},
		"shorter than MinTTL": {ms, ttl},
		"over":                {-time.Second, ttl},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			other := f.another()
			defer other.Close()
			ending := f.another()
			other.Settle(t.Context())
			ending.Settle(t.Context())
			acquired := f.now()
			l, err := ending.Acquire(t.Context(), redlock.Request{Names: []string{"x", "y"}, TTL: ttl, Keep: true})
			if err != nil {
				t.Fatal(err)
			}
			if n := ending.Outlast(t.Context(), []*redlock.Lease{l}, []time.Duration{f.now() + c.least}); n != 1 {
				t.Errorf("%s: extended %d leases, want 1", what, n)
			}
			want(t, what+": ttl", l.TTL(), ttl)
			if c.taken > ttl {
				time.Sleep(ttl) // the keeper extends it
			}
			ending.Close()
			_, err = other.Acquire(t.Context(), redlock.Request{Name: "y", TTL: ttl, Wait: redlock.Forever})
			if err != nil {
				t.Fatal(err)
			}
			wantWithin(t, what+": taken for", f.now()-acquired, c.taken-200*ms, c.taken+600*ms)
		})
	}
}

// Outlast extends many leases at once, and says how many it could not.
func TestOutlastMany(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		const n = 300
		var leases []*redlock.Lease
		var until []time.Duration
		for i := range n {
			leases = append(leases, f.acquire(redlock.Request{Name: name("x%d", i), TTL: 2 * time.Second, Keep: true}))
			until = append(until, f.now()+20*time.Second)
		}
		f.release(leases[0])
		want(t, "extended", f.q.Outlast(t.Context(), leases, until), n-1)
		for i, l := range leases[1:] {
			if l.Deadline() < until[i]-250*ms { // 1 % of 20 s is for drift
				t.Fatalf("%s: its deadline is %v before the instant", l.Name(), until[i]-l.Deadline())
			}
		}
		every(f.sims[:2], hang)
		until[1] += 5 * time.Second
		begin := f.now()
		want(t, "extended without a quorum", f.q.Outlast(t.Context(), leases[1:2], until[1:2]), 0)
		wantWithin(t, "took", f.now()-begin, 1, 100*ms)
		every(f.sims[:2], resume)
	})
}
