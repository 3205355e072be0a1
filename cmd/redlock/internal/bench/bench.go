package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

const (
	minDuration = 100 * time.Millisecond
	maxWorkers  = 1000 // a tenth of the default of leases_per_user
)

// Bench runs its phases in order. The caller sets the exported fields.
type Bench struct {
	Length  time.Duration
	Workers int
	Prefix  string
	AsJSON  bool

	Progress *term.Progress
	client   *client.Client
	hello    client.Hello
	status   *client.Status
	rows     []row
}

func (b *Bench) Check() error {
	switch {
	case b.Length < minDuration:
		return exit.Usagef("--duration %v: at least %v", b.Length, minDuration)
	case b.Workers < 1 || b.Workers > maxWorkers:
		return exit.Usagef("--workers %d: 1 to %d", b.Workers, maxWorkers)
	}
	return nil
}

// Run measures. It closes the connection at the end, which releases the locks that a failed step
// has left.
func (b *Bench) Run(ctx context.Context) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	c, err := socket.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	b.client = c
	b.Prefix += rand.Text()[:8] + "/"
	if err := b.identify(ctx); err != nil {
		return err
	}
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// identify fetches a description of the daemon. It fails if locks would have to wait for
// quarantined nodes.
func (b *Bench) identify(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, socket.AnswerTimeout)
	defer cancel()
	if b.hello, err = b.client.Hello(ctx); err == nil {
		b.status, err = b.client.Status(ctx)
	}
	if err != nil {
		return failureOf(ctx, err)
	}
	if b.status.Left > 0 {
		return exit.Errorf(exit.Unavailable, "nothing can be measured: %s (redlock status shows the nodes)", b.status.Text)
	}
	return nil
}

// warmUp takes one lock, so that errors show before the first phase.
func (b *Bench) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, socket.AnswerTimeout)
	defer cancel()
	lease, err := b.client.Lock(ctx, b.Prefix+"free")
	if err == nil {
		err = unlock(ctx, lease)
	}
	if err != nil {
		return failureOf(ctx, err)
	}
	return nil
}

func (b *Bench) measure(ctx context.Context) error {
	defer b.Progress.End()
	parts := b.phases()
	for i, p := range parts {
		b.Progress.Begin(p.name, i, len(parts))
		if err := b.runPhase(ctx, p, b.Length/time.Duration(len(parts))); err != nil {
			return err
		}
	}
	return nil
}

// runPhase runs the workers of a phase for length, and waits until they have released their
// locks.
func (b *Bench) runPhase(ctx context.Context, p phase, length time.Duration) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	over := time.AfterFunc(length, func() { fail(errPhaseOver) })
	defer over.Stop()
	start := time.Now()
	meters := make([]measurements, p.workers)
	var wg sync.WaitGroup
	for i := range meters {
		wg.Go(func() { p.work(ctx, i, &meters[i], fail) })
	}
	wg.Wait()
	b.rows = append(b.rows, newRows(p, meters, time.Since(start))...)
	if err := context.Cause(ctx); !errors.Is(err, errPhaseOver) {
		return failureOf(ctx, err)
	}
	return nil
}

// errPhaseOver ends a phase.
var errPhaseOver = errors.New("its time is over")

// failureOf returns the failure for an error or, if a signal caused the error, for the signal.
func failureOf(ctx context.Context, err error) error {
	if signaled, ok := errors.AsType[*exit.Failure](context.Cause(ctx)); ok {
		return signaled
	}
	return exit.FromClient(socket.ExplainTimeout(err))
}

// work repeats the step of a phase. An error ends the phase for all workers.
func (p *phase) work(ctx context.Context, worker int, m *measurements, fail context.CancelCauseFunc) {
	for ctx.Err() == nil {
		if err := p.step(ctx, worker, m); err != nil && ctx.Err() == nil {
			fail(err)
		}
	}
}

// untilSignal returns a context that a signal ends, with a failure as its cause, so that locks are
// released first. stop ends it and waits for its goroutine.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, fail := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var done sync.WaitGroup
	done.Go(func() {
		select {
		case sig := <-signals:
			fail(exit.WithCode(exit.SignalCode(sig.(syscall.Signal))))
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		fail(nil)
		done.Wait()
	}
}
