package redlock_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Many clients ask at the same time who shares a lock with thousands of readers. Each gets all of them,
// page by page, and the nodes stay up.
func TestRealManyAskWhoOfManyReaders(t *testing.T) {
	const readers, callers = 3000, 60
	s := newSite(t, 3)
	h := s.newHost(unhurried)
	s.shareWith(readers)
	h.forget()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			held, err := h.Who(t.Context(), "x")
			if err != nil || len(held) != readers {
				t.Errorf("Who: %d holders, %v", len(held), err)
			}
		})
	}
	all.Wait()
	for _, node := range []string{"a", "b", "c"} {
		want(t, "node "+node+" was down", slices.Contains(h.states(node), redlock.NodeDown), false)
	}
}

// FORCE can also revoke that many readers in one call.
func TestRealForceOfManyReaders(t *testing.T) {
	const readers = 6000
	s := newSite(t, 3)
	h := s.newHost(unhurried)
	s.shareWith(readers)
	forced, err := h.Force(t.Context(), "x")
	if err != nil || len(forced) != readers {
		t.Errorf("FORCE revoked %d readers: %v", len(forced), err)
	}
	h.Flush(t.Context()) // FORCE waits for a quorum
	for _, server := range s.all {
		want(t, "keys left on node "+server.Name(), s.tell(server, "EXISTS", "redlock:x", "redlock:x\x00m", "redlock:x\x00s").Int, 0)
	}
}

// shareWith makes the given number of readers share a lock on all servers.
func (s *site) shareWith(readers int) {
	s.Helper()
	until := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	for _, server := range s.all {
		members, places := []string{"ZADD", "redlock:x\x00m"}, []string{"ZADD", "redlock:x\x00s"}
		for i := range readers {
			token := fmt.Sprintf("%022d host=h pid=1 uid=1 user=u since=%0100d", i, i)
			members, places = append(members, until, token), append(places, "0", token)
		}
		s.tell(server, members...)
		s.tell(server, places...)
		s.tell(server, "SET", "redlock:x", "redlockd:shared", "PX", "3600000")
	}
}
