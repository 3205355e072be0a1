package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// Any number of Works can run at once. The pool keeps a bounded number of goroutines, and reuses
// them. They end with the last connection; otherwise the synctest bubble would not end.
func TestWorkersAreKeptAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = maxIdleWorkers + 50
		d := newFake()
		nc, over := pipeFake(d)
		go io.Copy(io.Discard, nc)
		for i := range n {
			say(t, nc, fmt.Sprintf("@%d LOCK x%d\n", i, i))
		}
		synctest.Wait()
		for i := range n {
			close(d.channel(d.gates, fmt.Sprint("x", i)))
		}
		synctest.Wait()
		wantIdle(t, d, maxIdleWorkers)
		say(t, nc, "@a LOCK y\n")
		synctest.Wait()
		wantIdle(t, d, maxIdleWorkers-1)
		close(d.channel(d.gates, "y"))
		synctest.Wait()
		wantIdle(t, d, maxIdleWorkers)
		nc.Close()
		<-over
		wantIdle(t, d, 0)
	})
}

func wantIdle(t *testing.T, d *fakeDaemon, want int) {
	t.Helper()
	d.workers.mu.Lock()
	defer d.workers.mu.Unlock()
	if got := len(d.workers.idle); got != want {
		t.Errorf("%d workers are idle, want %d", got, want)
	}
}

// Shutdown also waits for the workers. (The connection's goroutine may still be in release, which
// ended the last worker.)
func TestShutdownWaitsForWorkers(t *testing.T) {
	stacks := make([]byte, 1<<20)
	for range 50 {
		d := newFake()
		nc, _ := pipeFake(d)
		say(t, nc, "WHO x\n") // a worker answers it
		in := bufio.NewReader(nc)
		for line := ""; !strings.HasPrefix(line, "OK"); {
			line, _ = in.ReadString('\n')
		}
		go io.Copy(io.Discard, in) // until the connection ends
		if err := d.Shutdown(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if all := stacks[:runtime.Stack(stacks, true)]; bytes.Contains(all, []byte("server.(*workers[...]).serve(")) {
			t.Fatalf("a worker is left:\n%s", all)
		}
	}
}
