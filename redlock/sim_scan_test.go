package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// scanned returns how often each lock was on the pages of a scan.
func scanned(f *fleet, between func(page int)) (found map[string]int, pages int, err error) {
	f.Helper()
	found = map[string]int{}
	for cursor := ""; ; pages++ {
		page, err := f.q.Scan(f.Context(), cursor)
		if err != nil {
			return found, pages, err
		}
		for _, lock := range page.Locks {
			found[lock.Name]++
		}
		if cursor = page.Next; cursor == "" {
			return found, pages + 1, nil
		}
		between(pages)
	}
}

// hold acquires n locks.
func (f *fleet) hold(n int) (names []string) {
	f.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("lock%04d", i))
		f.acquire(redlock.Request{Name: names[i], TTL: 30 * time.Second, Keep: true})
	}
	return names
}

func wantAll(t *testing.T, found map[string]int, names []string) {
	t.Helper()
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] > 0 })
	if len(missing) > 0 || len(found) != len(names) {
		t.Errorf("%d locks were found, %d are missing: %v", len(found), len(missing), missing)
	}
}

// Each lock that is held during the whole scan is on a page, whichever two of five nodes lack it.
func TestScanFindsEveryLock(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		names := f.hold(600)
		for i, name := range names { // each pair of nodes lacks some
			f.sims[i%5].Do("DEL", "redlock:"+name)
			f.sims[(i+1+i/5%4)%5].Do("DEL", "redlock:"+name)
		}
		f.sims[0].Do("SET", "redlock:minority", "x", "PX", "60000")
		f.sims[0].Do("LPUSH", "redlock:list", "x")
		f.sims[0].Do("SET", "other:x", "x")
		found, pages, err := scanned(f, func(int) {})
		wantErr(t, "scan", err, nil)
		wantAll(t, found, names)
		if pages < 3*600*3/5/256 {
			t.Errorf("%d pages, want several from each of three nodes", pages)
		}
	})
}

// If a node goes down while it is read, another one is read instead. If it is up again with its
// keys in another order, it is read from the beginning.
func TestScanOutlastsNodes(t *testing.T) {
	for what, fault := range map[string]func(f *fleet){
		"down":   func(f *fleet) { f.sims[0].Down() },
		"hangs":  func(f *fleet) { f.sims[0].Hang() },
		"broken": func(f *fleet) { f.sims[0].Down(); time.Sleep(ms); f.sims[0].Up(); time.Sleep(time.Second) },
	} {
		t.Run(what, func(t *testing.T) {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				names := f.hold(600)
				found, _, err := scanned(f, func(page int) {
					if page == 0 {
						fault(f)
						time.Sleep(ms)
					}
				})
				wantErr(t, "scan", err, nil)
				wantAll(t, found, names)
			})
		})
	}
}

// If all nodes are silent for several node timeouts, as on a busy machine, a scan continues.
func TestScanOutlastsSilence(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		names := f.hold(600)
		found, _, err := scanned(f, func(page int) {
			if page == 2 {
				every(f.sims, hang)
				time.AfterFunc(300*ms, func() { every(f.sims, (*redlocktest.Sim).Resume) })
			}
		})
		wantErr(t, "scan", err, nil)
		wantAll(t, found, names)
	})
}

// Scan returns an error if too few nodes answer, if its context ends, and for a cursor of other
// origin.
func TestScanFails(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.hold(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.q.Scan(ctx, "")
		wantErr(t, "cancelled", err, context.Canceled)
		page, err := f.q.Scan(t.Context(), "")
		wantErr(t, "the first page", err, nil)
		for _, cursor := range []string{"x", "1.0.0.1", page.Next + " ", "ff.0.-1.0.0", "0.0.5.0.0", "0.0.-2.0.0", "1.0.0.1.x"} {
			_, err := f.q.Scan(t.Context(), cursor)
			wantErr(t, "cursor "+cursor, err, redlock.ErrCursor)
		}
		every(f.sims[:3], down)
		time.Sleep(ms)
		_, err = f.q.Scan(t.Context(), page.Next)
		wantErr(t, "three nodes are down", err, redlock.ErrNoQuorum)
	})
}

// Close ends a Scan that waits for the node that it reads, or for a quorum that knows the
// holders.
func TestScanEndsWithClose(t *testing.T) {
	for what, answering := range map[string]int{"for the node that it reads": 0, "for a quorum": 1} {
		for fault, begin := range map[string]func(*redlocktest.Sim){"hang": hang, "are down": down} {
			simTest(t, 3, func(t *testing.T, f *fleet) {
				f.hold(1)
				every(f.sims[answering:], begin)
				ended := make(chan error, 1)
				var at time.Duration
				go func() {
					_, err := f.q.Scan(t.Context(), "")
					at = f.now()
					ended <- err
				}()
				time.Sleep(500 * ms) // Scan has tried three or four times
				closed := f.now()
				f.q.Close()
				wantErr(t, name("%s, nodes %s", what, fault), <-ended, redlock.ErrClosed)
				wantWithin(t, name("%s, nodes %s: time from Close to its return", what, fault), at-closed, 0, 50*ms)
			})
		}
	}
}

// A page shows holders, readers and waiting clients of each lock.
func TestScanDescribesLocks(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.acquire(redlock.Request{Name: "one", TTL: 10 * time.Second, Holder: redlock.Holder{Host: "web3", PID: 41}})
		for range 12 {
			f.acquire(redlock.Request{Name: "many", TTL: 10 * time.Second, Shared: true})
		}
		f.acquire(redlock.Request{Name: "read", TTL: 10 * time.Second, Shared: true, Holder: redlock.Holder{Host: "web4"}})
		f.start(t.Context(), redlock.Request{Name: "read", TTL: 10 * time.Second, Wait: 5 * time.Second, Holder: redlock.Holder{Host: "web5"}})
		f.start(t.Context(), redlock.Request{Name: "one", TTL: 10 * time.Second, Wait: 5 * time.Second})
		time.Sleep(100 * ms)
		page, err := f.q.Scan(t.Context(), "")
		wantErr(t, "scan", err, nil)
		got := map[string]string{}
		for _, l := range page.Locks {
			got[l.Name] = fmt.Sprintf("many=%v", l.Many)
			for _, h := range l.Holdings {
				got[l.Name] += fmt.Sprintf(" %s %d/%d", h.Holder.Host, h.Held, h.Nodes)
			}
			for _, w := range l.Waiters {
				got[l.Name] += fmt.Sprintf(" waits: %s %d, for 0.1 s: %v", w.Holder.Host, w.Nodes, w.For > 50*ms && w.For < 150*ms)
			}
		}
		want(t, "one", got["one"], "many=false web3 3/3 waits: ? 3, for 0.1 s: true")
		want(t, "many", got["many"], "many=true")
		want(t, "read", got["read"], "many=false web4 3/3 waits: web5 3, for 0.1 s: true")
	})
}
