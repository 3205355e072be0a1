package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// A phase releases every lock that it holds or has requested before it returns, however it ends.
func TestBenchLeavesNothing(t *testing.T) {
	_, socket := cmdtest.StartDaemon(t)
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &Bench{client: c, Workers: 8, Prefix: "mine/"}
	for _, p := range b.phases()[1:] {
		ctx, cancel := context.WithCancelCause(t.Context())
		before := grantsOf(t, c)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer cancel(exit.WithCode(130))
			for grantsOf(t, c) < before+3 {
			}
		})
		err := b.runPhase(ctx, p, cmdtest.Timeout)
		wg.Wait()
		if f, _ := errors.AsType[*exit.Failure](err); f == nil || f.Code != 130 {
			t.Errorf("%s: it ended with %v, want exit code 130", p.name, err)
		}
		cmdtest.ExpectNothingHeld(t, socket)
	}
}

// grantsOf returns the number of grants so far, or a very large number if the daemon has ended.
func grantsOf(t *testing.T, c *client.Client) int64 {
	status, err := c.Status(t.Context())
	if err != nil {
		t.Error(err)
		return math.MaxInt64
	}
	return status.Counts["grants"]
}

func TestBenchBounds(t *testing.T) {
	for _, b := range []Bench{{Length: minDuration, Workers: 1}, {Length: time.Hour, Workers: maxWorkers}} {
		if err := b.Check(); err != nil {
			t.Errorf("%v and %d workers: %v", b.Length, b.Workers, err)
		}
	}
}

func TestBenchTable(t *testing.T) {
	f := row{name: "lock", workers: 1, took: 2 * time.Second}
	for i := range 1000 {
		f.times.add(time.Duration(i+1) * time.Microsecond)
	}
	b := &Bench{rows: []row{f, {name: "unlock", workers: 64, took: time.Second}}, Workers: 64}
	b.hello.Version, b.status = "1.2", cmdtest.HealthyStatus
	var out strings.Builder
	if err := b.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `redlockd 1.2, 3 nodes, a quorum is 2

WHAT    WORKERS  PER S  P50    P90    P99  MAX
lock    1        500    502µs  909µs  1ms  1ms
unlock  64       0      -      -      -    -
`
	if out.String() != want {
		t.Errorf("it prints\n%swant\n%s", out.String(), want)
	}
}

func TestRowsThatEndEarly(t *testing.T) {
	cmdtest.FailsWithoutRoom(t, "bench", (&Bench{status: cmdtest.TwoDown(), rows: make([]row, 2)}).Print)
}
