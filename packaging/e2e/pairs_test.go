//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// Each client takes and releases locks on one connection, from one worker and from 64. The log has the
// pairs of a second. Only with REDLOCKD_LONG, because it is a measurement:
// REDLOCKD_LONG=1 go test -v -run TestPairsOfEachClient ./packaging/e2e
func TestPairsOfEachClient(t *testing.T) {
	if !effort.IsLong() {
		return
	}
	t.Parallel()
	_, h, _ := five(t)
	const pairs = 12_800
	for _, workers := range []int{1, 64} {
		measure := func(name string, run func()) {
			began := time.Now()
			run()
			t.Logf("measured: %s, %d workers: %.0f pairs/s", name, workers, float64(pairs)/time.Since(began).Seconds())
		}
		measure("Go", func() { goPairs(t, h.socket, workers, pairs) })
		for _, program := range [][]string{
			{debianPython, "testdata/pairs.py"}, {debianPython, "testdata/pairs.py", "--aio"}, {"node", "testdata/pairs.mjs"},
		} {
			if _, err := exec.LookPath(program[0]); err != nil {
				t.Skipf("%s is needed: apt-get install python3 nodejs", program[0])
			}
			arguments := append([]string{h.socket, strconv.Itoa(workers), strconv.Itoa(pairs)}, program[2:]...)
			p := start(t, ".", append(program[:2:2], arguments...)...)
			p.prints("connected")
			measure(program[len(program)-1], func() {
				p.send("begin")
				p.prints("done")
			})
			if code := p.wait(); code != 0 {
				t.Errorf("%q ends with %d: %s", program, code, p.stderr.text())
			}
		}
	}
}

func goPairs(t *testing.T, socket string, workers, pairs int) {
	c, err := client.Dial(within(t), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() {
			for range pairs / workers {
				if err := goPair(t, c, "job-"+strconv.Itoa(n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func goPair(t *testing.T, c *client.Client, name string) error {
	l, err := c.Lock(t.Context(), name)
	if err == nil {
		err = l.Unlock(t.Context())
	}
	return err
}

// Many locks in turn leave no goroutine, no descriptor and no memory that grows with them. The tests of
// the other clients check the same: test_no_leak, and "no leak".
func TestGoClientLeaksNothing(t *testing.T) { // not in parallel: it counts what the process has
	_, h, _ := five(t)
	c, err := client.Dial(within(t), h.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lockInTurn := func(times int) {
		for range times {
			if err := goPair(t, c, "job"); err != nil {
				t.Fatal(err)
			}
		}
	}
	lockInTurn(50) // so that pools are filled
	goroutines, files, memory := runtime.NumGoroutine(), openFiles(t), heap()
	locks := rounds(500, 10_000)
	lockInTurn(locks)
	waitFor(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := openFiles(t); n > files {
		t.Errorf("%d files are open, before the locks it was %d", n, files)
	}
	if grown := heap() - memory; grown > int64(locks)*50 { // a lease that is kept has more
		t.Errorf("%d locks left %d bytes", locks, grown)
	}
	if c.Reconnects() != 0 {
		t.Errorf("%d connections were made after the first", c.Reconnects())
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// heap returns how many bytes of memory are reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC() // also empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
