package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readersPartName = "readers"
	readersHold     = 50 * time.Millisecond // at most; half of it at least
	writerHold      = time.Millisecond
	// writerPause is how long no writer comes at least: time for the readers, who
	// all come in when one leaves, to mix, so that somebody is always inside.
	writerPause = 2 * readersHold
	readersTTL  = 10 * time.Second
	// writerPatience is how long a writer waits at most: more than enough, unless readers
	// starve it.
	writerPatience = 5 * time.Second
	// readersLimit is how long after its end a slice of readers may hang.
	readersLimit = 15 * time.Second
)

// readersSample is what readers and writers of one name did.
type readersSample struct {
	skipped  string          // why there is nothing else: what the daemon answered
	together int             // readers that held at once
	gathered time.Duration   // how long it took until all did
	waits    []time.Duration // of the writers, sorted
	reads    int             // grants to readers while writers came
	elapsed  time.Duration
	clashes  int // a writer was not alone
}

// readersBench has readers on two hosts, and a writer that is now on one of them
// and now on the other.
type readersBench struct {
	readers []*rawConn
	writers []*rawConn
	name    string

	inside  atomic.Int32 // readers
	writing atomic.Bool
	clashes atomic.Int32
	reads   atomic.Int32
	over    atomic.Bool
}

func readersPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(readersPartName) {
		return nil
	}
	f := &fleet{nodes: env.nodes}
	defer func() { err = errors.Join(err, f.stop()) }()
	for i := range 2 {
		d, err := env.startDaemon(ctx, fmt.Sprintf("readers%d", i+1))
		if err != nil {
			return err
		}
		f.hosts = append(f.hosts, d)
	}
	var all []readersSample
	for round := range o.rounds {
		fmt.Fprintf(logs, "%d readers of one name: round %d of %d\n", workersAtOnce, round+1, o.rounds)
		got, err := measureReaders(ctx, f.hosts, fmt.Sprintf("readers%d", round), contendedSlices*o.slice)
		if err != nil {
			return fmt.Errorf("readers: %w", err)
		}
		all = append(all, got)
		if got.skipped != "" {
			break
		}
	}
	rep.addReaders(all)
	return nil
}

// measureReaders has all readers hold the name together, then come and go for so
// long while writers want it too.
func measureReaders(ctx context.Context, daemons []*daemon, name string, length time.Duration) (s readersSample, err error) {
	b := &readersBench{name: name}
	defer b.close()
	if err := b.dial(ctx, daemons, length); err != nil {
		return s, err
	}
	s.gathered, err = b.gather()
	if refused, ok := errors.AsType[refusal](err); ok && refused.code() == "OPTION" {
		return readersSample{skipped: string(refused)}, nil
	}
	if err != nil {
		return s, err
	}
	s.together = int(b.inside.Load())
	if err := b.part(); err != nil {
		return s, err
	}
	return s, b.mix(ctx, &s, length)
}

// dial makes the connections, which end by themselves if they hang.
func (b *readersBench) dial(ctx context.Context, daemons []*daemon, length time.Duration) error {
	end := time.Now().Add(length + readersLimit)
	for i := range workersAtOnce + len(daemons) {
		c, err := dialRaw(ctx, daemons[i%len(daemons)].socket)
		if err != nil {
			return err
		}
		if i < workersAtOnce {
			b.readers = append(b.readers, c)
		} else {
			b.writers = append(b.writers, c)
		}
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	return nil
}

func (b *readersBench) close() {
	for _, c := range slices.Concat(b.readers, b.writers) {
		c.Close()
	}
}

// gather has all readers take the lock and keep it.
func (b *readersBench) gather() (time.Duration, error) {
	start := time.Now()
	err := inParallel(len(b.readers), func(i int) error { return b.enter(b.readers[i]) })
	return time.Since(start), err
}

// part has all of them give it back.
func (b *readersBench) part() error {
	return inParallel(len(b.readers), func(i int) error { return b.leave(b.readers[i]) })
}

func (b *readersBench) enter(c *rawConn) error {
	if err := c.ask("LOCK %s mode=shared ttl=%d", b.name, readersTTL.Milliseconds()); err != nil {
		return err
	}
	b.inside.Add(1)
	if b.writing.Load() {
		b.clashes.Add(1)
	}
	return nil
}

func (b *readersBench) leave(c *rawConn) error {
	b.inside.Add(-1)
	return c.ask("UNLOCK %s", b.name)
}

// mix has readers come and go without a pause, and a writer come now and then.
func (b *readersBench) mix(ctx context.Context, s *readersSample, length time.Duration) error {
	defer time.AfterFunc(length, func() { b.over.Store(true) }).Stop()
	start := time.Now()
	errs := make([]error, len(b.readers))
	var wg sync.WaitGroup
	for i, c := range b.readers {
		wg.Go(func() { errs[i] = b.read(ctx, c) })
	}
	waits, err := b.write(ctx)
	b.over.Store(true)
	wg.Wait()
	s.elapsed = time.Since(start)
	slices.Sort(waits)
	s.waits, s.reads, s.clashes = waits, int(b.reads.Load()), int(b.clashes.Load())
	return errors.Join(err, errors.Join(errs...))
}

// read is one reader's work.
func (b *readersBench) read(ctx context.Context, c *rawConn) error {
	a, err := newAlarm()
	if err != nil {
		return err
	}
	defer a.close()
	for ; !b.over.Load() && ctx.Err() == nil; b.reads.Add(1) {
		if err := b.enter(c); err != nil {
			return err
		}
		a.sleep(readersHold/2 + rand.N(readersHold/2))
		if err := b.leave(c); err != nil {
			return err
		}
	}
	return nil
}

// write returns how long the writers waited, one after the other.
func (b *readersBench) write(ctx context.Context) (waits []time.Duration, err error) {
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	defer a.close()
	for i := 0; !b.over.Load(); i++ {
		if err := pause(ctx, writerPause+rand.N(readersHold)); err != nil {
			return waits, err
		}
		waited, err := b.writeOnce(b.writers[i%len(b.writers)], a)
		if err != nil {
			return waits, err
		}
		waits = append(waits, waited)
	}
	return waits, nil
}

func (b *readersBench) writeOnce(c *rawConn, a *alarm) (time.Duration, error) {
	start := time.Now()
	err := c.ask("LOCK %s ttl=%d wait=%d", b.name, readersTTL.Milliseconds(), writerPatience.Milliseconds())
	waited := time.Since(start)
	if refused, ok := errors.AsType[refusal](err); ok && refused.code() == "HELD" {
		return waited, nil // which is long enough to be seen in the figures
	}
	if err != nil {
		return 0, err
	}
	b.writing.Store(true)
	if b.inside.Load() > 0 {
		b.clashes.Add(1)
	}
	a.sleep(writerHold)
	b.writing.Store(false)
	return waited, c.ask("UNLOCK %s", b.name)
}
