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
	readersHold     = 50 * time.Millisecond // longest hold time of a reader; the shortest is half of it
	writerHold      = time.Millisecond
	// writerPause is the shortest time between two writers. In it the readers, which all enter when
	// a writer leaves, get out of step, so that there is always a reader inside.
	writerPause = 2 * readersHold
	readersTTL  = 10 * time.Second
	// writerPatience is how long a writer waits at most. It is only exceeded if readers starve the
	// writer.
	writerPatience = 5 * time.Second
	// readersLimit is how long a slice of readers may hang after its end.
	readersLimit = 15 * time.Second
)

// readersSample has the results of readers and writers of one name.
type readersSample struct {
	skipped  string          // why it was not measured: the daemon's answer
	together int             // readers that held the lock at once
	gathered time.Duration   // time until all readers held it
	waits    []time.Duration // of the writers, sorted
	reads    int             // grants to readers while there were writers
	elapsed  time.Duration
	clashes  int // times that a writer was not alone
}

// sharer takes one lock at a time, for itself or with others.
type sharer interface {
	// take returns errImpatient if the lock was not granted within patience; 0: it waits on.
	take(name string, shared bool, patience time.Duration) error
	drop(name string) error
}

var errImpatient = errors.New("not granted in time")

// readersBench has readers on two hosts, and a writer that alternates between them.
type readersBench struct {
	readers []sharer
	writers []sharer
	name    string

	inside  atomic.Int32 // readers inside
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

// measureReaders has readers and writers on the hosts of the daemons.
func measureReaders(ctx context.Context, daemons []*daemon, name string, length time.Duration) (s readersSample, err error) {
	conns, err := dialSharers(ctx, daemons, length)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return s, err
	}
	var all []sharer
	for _, c := range conns {
		all = append(all, c)
	}
	b := &readersBench{name: name, readers: all[:workersAtOnce], writers: all[workersAtOnce:]}
	return b.measure(ctx, length)
}

// measure first lets all readers hold the name together. Then readers come and go for length, while
// writers want the name too.
func (b *readersBench) measure(ctx context.Context, length time.Duration) (s readersSample, err error) {
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

// dialSharers makes the connections of the readers, and then those of a writer on each host. They
// have a deadline in case they hang.
func dialSharers(ctx context.Context, daemons []*daemon, length time.Duration) (conns []*rawConn, err error) {
	end := time.Now().Add(length + readersLimit)
	for i := range workersAtOnce + len(daemons) {
		c, err := dialRaw(ctx, daemons[i%len(daemons)].socket)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		if err := c.SetDeadline(end); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

func (c *rawConn) take(name string, shared bool, patience time.Duration) error {
	request := fmt.Sprintf("LOCK %s ttl=%d", name, readersTTL.Milliseconds())
	if shared {
		request += " mode=shared"
	}
	if patience > 0 {
		request += fmt.Sprintf(" wait=%d", patience.Milliseconds())
	}
	err := c.ask("%s", request)
	if refused, ok := errors.AsType[refusal](err); ok && refused.code() == "HELD" {
		return errImpatient
	}
	return err
}

func (c *rawConn) drop(name string) error { return c.ask("UNLOCK %s", name) }

// gather lets all readers take the lock and keep it.
func (b *readersBench) gather() (time.Duration, error) {
	start := time.Now()
	err := inParallel(len(b.readers), func(i int) error { return b.enter(b.readers[i]) })
	return time.Since(start), err
}

// part lets all readers release the lock.
func (b *readersBench) part() error {
	return inParallel(len(b.readers), func(i int) error { return b.leave(b.readers[i]) })
}

func (b *readersBench) enter(c sharer) error {
	if err := c.take(b.name, true, 0); err != nil {
		return err
	}
	b.inside.Add(1)
	if b.writing.Load() {
		b.clashes.Add(1)
	}
	return nil
}

func (b *readersBench) leave(c sharer) error {
	b.inside.Add(-1)
	return c.drop(b.name)
}

// mix lets readers come and go without a pause, and a writer come now and then.
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

// read is the loop of one reader.
func (b *readersBench) read(ctx context.Context, c sharer) error {
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

// write is the loop of the writer. It returns the waits, in order.
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

func (b *readersBench) writeOnce(c sharer, a *alarm) (time.Duration, error) {
	start := time.Now()
	err := c.take(b.name, false, writerPatience)
	waited := time.Since(start)
	if errors.Is(err, errImpatient) {
		return waited, nil // long enough to show in the figures
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
	return waited, c.drop(b.name)
}
