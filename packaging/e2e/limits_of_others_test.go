//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// greedy is a user at the default limits of a host. What is granted is released and requested again.
type greedy struct {
	host                     *host
	users                    sync.WaitGroup
	granted, refused, listed atomic.Int32
}

// request sends LOCKs on a new connection. If again is set, each one that is granted is released, and
// sent again.
func (u *greedy) request(t *testing.T, count int, again bool, lock func(i int) (names, options string)) {
	g := u.host.guest(t)
	send := func(i int) string {
		names, options := lock(i)
		return fmt.Sprintf("@%d LOCK %s owner=o%[1]d wait=60s %[3]s\n", i, names, options)
	}
	u.users.Go(func() {
		for in := bufio.NewScanner(g.in); in.Scan(); {
			var i int
			if fmt.Sscanf(in.Text(), "@%d", &i); strings.Contains(in.Text(), " ERR LIMIT ") {
				u.refused.Add(1)
			} else if strings.Contains(in.Text(), " fence=") {
				if u.granted.Add(1); again {
					names, _ := lock(i)
					g.write(fmt.Sprintf("@%d UNLOCK %s owner=o%[1]d\n", i, names))
				}
			} else if strings.Contains(in.Text(), " OK ") && again {
				g.write(send(i))
			}
		}
	})
	for i := range count {
		g.write(send(i))
	}
}

// list asks for all locks of all hosts until the connection ends.
func (u *greedy) list(t *testing.T) {
	g := u.host.guest(t)
	u.users.Go(func() {
		g.write("LIST all=yes\n")
		for in := bufio.NewScanner(g.in); in.Scan(); {
			if strings.HasPrefix(in.Text(), "-") {
				continue
			}
			u.listed.Add(1)
			from := field(in.Text(), "next")
			if from != "" {
				from = " from=" + from
			}
			g.write("LIST all=yes" + from + "\n")
		}
	})
}

// A user who is at all default limits on one host takes no lease from a user on another host. The share of
// late TRYs is printed and no bound, because other processes of the machine make TRYs late, too.
func TestUserAtAllLimitsLosesNoLeaseOfAnother(t *testing.T) { // not in parallel: it needs the processors
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	busy, calm := newHost(t, cluster), newHost(t, cluster)
	for _, h := range []*host{busy, calm} {
		writeFile(t, h.config, strings.Replace(readFile(t, h.config), `node_timeout = "2s"`, `node_timeout = "1s"`, 1))
		h.serve()
	}
	keeper, blocker, tries := calm.guest(t), calm.guest(t), calm.guest(t)
	const kept, keptTTL = 20, 6 * time.Second
	for i := range kept {
		keeper.ask(fmt.Sprintf("LOCK kept%d ttl=%d wait=30s", i, keptTTL.Milliseconds()), "OK lock=kept")
	}
	blocker.ask("LOCK n99,readers wait=30s", "OK lock=")

	names := "n00"
	for i := 1; i < 100; i++ {
		names += fmt.Sprintf(",n%02d", i)
	}
	u := &greedy{host: busy}
	t.Cleanup(u.users.Wait)
	u.request(t, 1000, false, func(int) (string, string) { return "slots", "slots=1000" })
	u.request(t, 40, true, func(i int) (string, string) {
		if i%8 == 7 {
			return names, ""
		}
		return names, "mode=shared"
	})
	for range 6 {
		u.request(t, 1000, false, func(int) (string, string) { return "readers", "mode=shared" })
	}
	u.list(t)
	for giveUp := time.After(2 * patience); u.granted.Load() < 1000 || u.refused.Load() == 0; {
		select {
		case <-giveUp:
			t.Fatalf("of 1,000 slots %d are taken; %d requests are over a limit", u.granted.Load(), u.refused.Load())
		case <-time.After(10 * time.Millisecond):
		}
	}

	var took []time.Duration
	late, failed := 0, 0
	for end := time.Now().Add(keptTTL * 3 / 2); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if len(took) == 20 {
			blocker.write("UNLOCK n99,readers\n")
		}
		began := time.Now()
		tries.write(fmt.Sprintf("TRY other%d\n", len(took)))
		line, _ := tries.line()
		took = append(took, time.Since(began))
		if !strings.HasPrefix(line, "OK") {
			failed++
		} else if took[len(took)-1] > 50*time.Millisecond {
			late++
		}
	}
	for i := range kept {
		keeper.ask(fmt.Sprintf("CHECK kept%d", i), "OK lock=kept") // LOST would come before it
	}
	slices.Sort(took)
	t.Logf("measured: of %d TRYs %d took more than 50 ms, %d failed; median %v, longest %v; beside %d grants and %d pages of LIST",
		len(took), late, failed, took[len(took)/2], took[len(took)-1], u.granted.Load(), u.listed.Load())
}
