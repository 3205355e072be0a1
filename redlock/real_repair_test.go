package redlock_test

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A lease that expired while a quorum of nodes was stopped never becomes valid again, neither by
// calls that these nodes still execute when they continue, nor by later calls. The next holder's
// lease is the only one.
func TestRealExpiredLeaseStaysLost(t *testing.T) {
	s := newSite(t, 5)
	h, other := s.newHost(maxTTL(steady)), s.newHost(maxTTL(steady))
	l := h.take(redlock.Request{Name: "x", TTL: steady, Keep: true})
	token := h.tokenOn(s.server("c"), "x")
	standing := s.all[2:]
	var setsSinceStopped []func() []string
	for _, server := range standing {
		executed := s.monitor(server)
		must(t, server.Stop())
		stopped := time.Now()
		setsSinceStopped = append(setsSinceStopped, func() []string { return executed("SET", stopped) })
	}
	<-l.Lost()
	h.eventually("the lease's keys have expired", func() bool { return l.Validity() < -100*ms })
	for _, server := range standing {
		must(t, server.Cont())
	}
	for i, server := range standing {
		h.looksAgain(server, s.looks(server)) // by then the node has executed all calls
		want(t, "SETs on node "+server.Name()+" since it was stopped", fmt.Sprint(setsSinceStopped[i]()), "[]")
	}
	next := other.take(redlock.Request{Name: "x", TTL: steady, Keep: true})
	now := next.Deadline()
	other.eventually("the next lease is extended", func() bool { return next.Deadline() > now })
	for _, server := range s.all {
		if s.keyOn(server, "x") == token {
			t.Errorf("node %s has an expired lease", server.Name())
		}
	}
	wantErr(t, "the expired lease", l.Err(), redlock.ErrLost)
	want(t, "the next lease", next.Err(), nil)
	if next.Fence() <= l.Fence() {
		t.Errorf("fencing token %d after %d", next.Fence(), l.Fence())
	}
}

// monitor watches what a server executes. The function that it returns gives the lines of MONITOR about
// a command since an instant.
func (s *site) monitor(server *redlocktest.Server) func(command string, since time.Time) []string {
	s.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(server.Addr(), "unix:"))
	must(s, err)
	s.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(s, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20) // a line may have a whole script
	if !lines.Scan() || lines.Text() != "+OK" {
		s.Fatalf("server %s: MONITOR: got %q and %v", server.Name(), lines.Text(), lines.Err())
	}
	return func(command string, since time.Time) (found []string) {
		s.Helper()
		s.tell(server, "ECHO", "the end") // all that was executed before it is in the stream before it
		for lines.Scan() && !strings.Contains(lines.Text(), "the end") {
			at, what, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "+"), " ")
			seconds, err := strconv.ParseFloat(at, 64)
			must(s, err)
			if strings.Contains(strings.ToUpper(what), `] "`+command+`" `) && time.UnixMicro(int64(seconds*1e6)).After(since) {
				found = append(found, lines.Text())
			}
		}
		must(s, lines.Err())
		return found
	}
}
