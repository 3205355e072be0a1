package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

const (
	leastBench  = 100 * time.Millisecond
	mostWorkers = 1000 // of the leases that a user may have as it comes, a tenth
)

func newBenchCommand() *cobra.Command {
	b := &bench{length: durationFlag(4 * time.Second), workers: 64, prefix: "redlock-bench/"}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the latency and throughput of this host's daemon and its nodes",
		Long: `Measure the latency and throughput of this host's daemon and its nodes, while others
use them too: they are slower for as long. It takes locks of its own, under
--prefix and a random word, on one connection, and leaves nothing.

The rows, each for a quarter of --duration:
  ping        the daemon answers, without its nodes: what the socket costs
  lock        one worker takes a lock that nobody else wants …
  unlock      … and gives it back
  throughput  many workers (--workers), each with a lock of its own: lock and unlock
  hand-over   as many workers want the same lock: from the unlock of one until the
              next one has it

With --json: {"version", "nodes", "quorum", "workers", "rows": [{"row", "workers",
"done", "per_second", "p50_us", "p90_us", "p99_us", "max_us"}]}. Times are in
microseconds.

Exit codes: 0; 64 usage; 69 the daemon is not available, or too few nodes are; 70
internal; 77 denied, or over a limit; 128+N signal N ended it.`,
		Example: `  redlock bench
  redlock bench --duration 1s --workers 16 --json | jq '.rows[] | {row, p99_us}'`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			b.progress = newProgress(cmd.ErrOrStderr(), time.Duration(b.length))
			if err := b.run(cmd.Context()); err != nil {
				return err
			}
			if b.asJSON {
				return printJSON(cmd.OutOrStdout(), b.json())
			}
			return b.print(cmd.OutOrStdout())
		},
	}
	jsonFlag(cmd, &b.asJSON)
	cmd.Flags().Var(&b.length, "duration", "how long to measure in all")
	cmd.Flags().Var(anyNumber(&b.workers, "MANY"), "workers", "how many workers there are where there are many")
	cmd.Flags().Var(textFlag{&b.prefix, "NAMES"}, "prefix", "what names begin with: where access rules allow only some")
	noValues(cmd, "duration", "workers", "prefix")
	return cmd
}

// bench measures one part after the other.
type bench struct {
	length  durationFlag
	workers int
	prefix  string
	asJSON  bool

	progress *progress
	c        *client.Client
	hello    client.Hello
	status   *client.Status
	rows     []row
}

func (b *bench) check() error {
	switch {
	case time.Duration(b.length) < leastBench:
		return usage("--duration %v: at least %v", time.Duration(b.length), leastBench)
	case b.workers < 1 || b.workers > mostWorkers:
		return usage("--workers %d: 1 to %d", b.workers, mostWorkers)
	}
	return nil
}

// run measures. The connection is closed in the end, which gives back what a
// failure may have left.
func (b *bench) run(ctx context.Context) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	b.c = c
	b.prefix += rand.Text()[:8] + "/"
	if err := b.introduce(ctx); err != nil {
		return err
	}
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// introduce learns what is measured, and errs where nodes in quarantine would have
// to be waited for.
func (b *bench) introduce(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if b.hello, err = b.c.Hello(ctx); err == nil {
		b.status, err = b.c.Status(ctx)
	}
	if err != nil {
		return endOf(ctx, err)
	}
	if b.status.Left > 0 {
		return fail(exitUnavailable, "nothing can be measured: %s (redlock status shows the nodes)", b.status.Text)
	}
	return nil
}

// warmUp takes a lock once: where that cannot be, it errs at once.
func (b *bench) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	lease, err := b.c.Lock(ctx, b.prefix+"free")
	if err == nil {
		err = unlock(ctx, lease)
	}
	if err != nil {
		return endOf(ctx, err)
	}
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	defer b.progress.end()
	parts := b.parts()
	for i, p := range parts {
		b.progress.begin(p.name, i, len(parts))
		if err := b.part(ctx, p, time.Duration(b.length)/time.Duration(len(parts))); err != nil {
			return err
		}
	}
	return nil
}

// part runs the workers of a part for so long, and until they have given back
// what they had.
func (b *bench) part(ctx context.Context, p part, length time.Duration) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	over := time.AfterFunc(length, func() { fail(errTimeOver) })
	defer over.Stop()
	start := time.Now()
	meters := make([]meter, p.workers)
	var wg sync.WaitGroup
	for i := range meters {
		wg.Go(func() { p.work(ctx, i, &meters[i], fail) })
	}
	wg.Wait()
	b.rows = append(b.rows, rowsOf(p, meters, time.Since(start))...)
	if err := context.Cause(ctx); !errors.Is(err, errTimeOver) {
		return endOf(ctx, err)
	}
	return nil
}

// errTimeOver is how a part ends.
var errTimeOver = errors.New("its time is over")

// endOf is the failure that an error is, or the signal that led to it.
func endOf(ctx context.Context, err error) error {
	if signaled, ok := errors.AsType[*failure](context.Cause(ctx)); ok {
		return signaled
	}
	return daemonFailure(silence(err))
}

// work does a part's step over and over. An error that is not of the part's end
// ends it for all.
func (p *part) work(ctx context.Context, worker int, m *meter, fail context.CancelCauseFunc) {
	for ctx.Err() == nil {
		if err := p.step(ctx, worker, m); err != nil && ctx.Err() == nil {
			fail(err)
		}
	}
}

// untilSignal ends with the failure that a signal asks for: until then what is
// locked has to be given back. What it returns too ends it without one.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, fail := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var done sync.WaitGroup
	done.Go(func() {
		select {
		case sig := <-signals:
			fail(exit(signalCode(sig.(syscall.Signal))))
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		fail(nil)
		done.Wait()
	}
}
