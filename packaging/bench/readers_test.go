package main

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeDaemon answers LOCK and UNLOCK only, from memory.
type fakeDaemon struct {
	refuse string // its answer to readers; empty: it grants
	lax    bool   // it grants every request
	lock   sync.RWMutex
}

// listen serves until the test ends, and returns the daemon with its socket.
func (f *fakeDaemon) listen(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait) // its clients have disconnected
	t.Cleanup(func() { l.Close() })
	wg.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			wg.Go(func() { f.serve(conn) })
		}
	})
	return d
}

func (f *fakeDaemon) serve(conn net.Conn) {
	defer conn.Close()
	unlock := func() {}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		shared := strings.Contains(lines.Text(), "mode=shared")
		switch {
		case strings.HasPrefix(lines.Text(), "UNLOCK"):
			unlock()
		case shared && f.refuse != "":
			fmt.Fprintln(conn, f.refuse)
			continue
		case f.lax:
		case shared:
			f.lock.RLock()
			unlock = f.lock.RUnlock
		default:
			f.lock.Lock()
			unlock = f.lock.Unlock
		}
		fmt.Fprintln(conn, "BACK\nOK lock=x")
	}
}

func TestReadersOfADaemonThatHasThem(t *testing.T) {
	d := new(fakeDaemon).listen(t)
	withSlices(t, 300*time.Millisecond, func(length time.Duration) error {
		s, err := measureReaders(t.Context(), []*daemon{d, d}, "x", length)
		if err != nil || s.skipped != "" {
			t.Fatalf("%+v, %v", s, err)
		}
		if s.together != workersAtOnce || s.clashes > 0 {
			t.Errorf("%d readers together, %d clashes; want %d and none", s.together, s.clashes, workersAtOnce)
		}
		// With a sync.RWMutex, a writer waits for the readers that came before it. The last of 64 has
		// begun only shortly before.
		if len(s.waits) == 0 || s.reads < workersAtOnce || s.waits[len(s.waits)-1] < readersHold/4 {
			return fmt.Errorf("%d grants to readers that hold for up to %v, writers waited for %v", s.reads, readersHold, s.waits)
		}
		return nil
	})
}

func TestClashOfReadersAndWritersIsSeen(t *testing.T) {
	d := (&fakeDaemon{lax: true}).listen(t)
	s, err := measureReaders(t.Context(), []*daemon{d}, "x", time.Second)
	if err != nil || s.clashes == 0 {
		t.Fatalf("a writer was let in beside readers: %d clashes, %v; want some", s.clashes, err)
	}
	rep := &report{}
	rep.addReaders([]readersSample{s})
	if rep.fault() == nil {
		t.Error("clashes, and no fault")
	}
}

// TestEachSideSeesAClash: if another client is inside, both readers and writers notice it, whatever
// the daemon says.
func TestEachSideSeesAClash(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	c, err := dialRaw(t.Context(), (&fakeDaemon{lax: true}).listen(t).socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &readersBench{name: "x"}
	b.inside.Store(1)
	if _, err := b.writeOnce(c, a); err != nil || b.clashes.Load() != 1 {
		t.Errorf("a writer entered beside a reader: %d clashes, %v; want 1", b.clashes.Load(), err)
	}
	b.writing.Store(true)
	if err := b.enter(c); err != nil || b.clashes.Load() != 2 {
		t.Errorf("a reader entered beside a writer: %d clashes, %v; want another one", b.clashes.Load(), err)
	}
}

func TestReadersAreSkipped(t *testing.T) {
	const answer = "ERR OPTION lock=x : mode=shared is not in this version"
	d := (&fakeDaemon{refuse: answer}).listen(t)
	s, err := measureReaders(t.Context(), []*daemon{d}, "x", time.Second)
	if err != nil || s.skipped != answer {
		t.Fatalf("%+v, %v; want it skipped", s, err)
	}
	rep := &report{}
	rep.addReaders([]readersSample{s})
	var out strings.Builder
	rep.print(&out)
	if !strings.Contains(out.String(), "skipped, this daemon has none") || len(targetsOf(rep)) > 0 {
		t.Errorf("printed\n%s\nand judged %v; want a line that it was skipped", out.String(), targetsOf(rep))
	}
	d = (&fakeDaemon{refuse: "ERR NOQUORUM"}).listen(t)
	if _, err := measureReaders(t.Context(), []*daemon{d}, "x", time.Second); err == nil {
		t.Error("another refusal was taken for a version without readers")
	}
}

// TestReaders uses real daemons.
func TestReaders(t *testing.T) {
	env := testEnvironment(t)
	withSlices(t, 100*time.Millisecond, func(length time.Duration) error {
		rep := &report{}
		o := options{only: []string{readersPartName}, rounds: 1, slice: length}
		if err := readersPart(t.Context(), o, env, rep, t.Output()); err != nil {
			t.Fatal(err)
		}
		r := rep.Readers
		if r.Skipped != "" || r.Together != workersAtOnce || r.Clashes > 0 {
			t.Errorf("%+v; want %d readers together, and no clash", r, workersAtOnce)
		}
		if r.Writers == 0 || r.Reads == 0 {
			return fmt.Errorf("%+v; want writers and readers", r)
		}
		return nil
	})
}
