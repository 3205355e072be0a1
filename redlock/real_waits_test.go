package redlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A question about waiting hosts costs a node calls for each lock, not for each
// waiter: one call for WHO, and less than one for five locks in a list of all locks.
func TestRealCostOfWaitingHosts(t *testing.T) {
	const locks, hosts = 300, 50
	s := newSite(t, 3)
	h := s.newHost(unhurried)
	const fill = `
		for i = 0, ARGV[1] - 1 do
			local key = 'redlock:job' .. i
			for host = 0, ARGV[2] - 1 do
				local ticket = string.format('%.0f', ARGV[3] - (ARGV[2] - host) * 1000000)
				redis.call('ZADD', key .. '\0q', ticket, string.format('host%d - 50 %022d host=web%d pid=1 uid=1 user=u since=1', host, host, host))
			end
			redis.call('SET', key .. '\0t', '0')
			redis.call('SET', key, string.format('%022d host=h pid=1 uid=1 user=u since=1', i), 'PX', 600000)
		end`
	now := time.Now().UnixMicro()
	for _, server := range s.all {
		s.tell(server, "EVAL", fill, "0", fmt.Sprint(locks), fmt.Sprint(hosts), fmt.Sprint(now))
	}
	calls := func(ask func()) (each []int64) {
		before := s.scriptCalls()
		ask()
		for i, n := range s.scriptCalls() {
			each = append(each, n-before[i])
		}
		return each
	}
	h.eventually("WHO takes one call on each node", func() bool { // or a look at a node is counted as well
		who := calls(func() {
			holders, waiters, err := h.WhoWaits(t.Context(), "job7")
			if err != nil || len(holders) != 1 || len(waiters) != hosts || waiters[0].Holder.Host != "web0" || waiters[0].For-waiters[1].For != time.Second {
				t.Errorf("%d holders, waiters %v, %v", len(holders), waiters, err)
			}
		})
		return slices.Equal(who, []int64{1, 1, 1})
	})
	list := calls(func() {
		seen := map[string]bool{}
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := h.Scan(t.Context(), cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, lock := range page.Locks {
				seen[lock.Name] = true
				want(t, lock.Name+": hosts that wait", len(lock.Waiters), hosts)
			}
			cursor = page.Next
		}
		want(t, "locks", len(seen), locks)
	})
	if slices.Max(list) > locks/3 {
		t.Errorf("the list of %d locks took %v calls", locks, list)
	}
	t.Logf("a list of %d locks with %d waiters each took %v calls", locks, hosts, list)
}

// scriptCalls returns how many script calls each server has executed.
func (s *site) scriptCalls() (calls []int64) {
	s.Helper()
	for _, server := range s.all {
		counts, err := server.Commands()
		if err != nil {
			s.Fatal(err)
		}
		calls = append(calls, counts.ByName["evalsha"])
	}
	return calls
}
