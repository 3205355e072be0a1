//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is 200 clients of one daemon, each with one connection that must not break. They hold locks,
// wait for them, send PING, send many requests at once, have sent half a line, or are idle. Faults
// are collected, and fail the test at the end.
type load struct {
	t       *testing.T
	socket  string
	book    *book
	over    chan struct{} // closed when the clients must end
	hung    chan struct{} // closed by hang
	hanging sync.Once
	callers []*caller
	line    *line
	halves  []*half
	loops   sync.WaitGroup
	rounds  []round

	mu     sync.Mutex // guards the fields below
	faults []string
	told   int   // number of faults that were reported
	now    round // the round that began last
}

// round is the time between an action on the daemon and the moment when all clients have seen it.
type round struct {
	what     string
	from, to time.Time
}

// startLoad starts the clients, and returns when all of them work.
func startLoad(t *testing.T, socket string) *load {
	t.Helper()
	l := &load{t: t, socket: socket, over: make(chan struct{}), hung: make(chan struct{})}
	l.book = newBook(l.fault)
	t.Cleanup(l.hangUp)
	l.start(50, (*caller).holds)
	l.start(50, (*caller).contends)
	l.start(9, (*caller).shares)
	l.start(30, (*caller).idles)
	l.start(10, (*caller).idlesWithLock)
	l.start(20, (*caller).pings)
	l.start(10, (*caller).pipelines)
	l.line = newLine(l, 11)
	for range 10 {
		l.halves = append(l.halves, newHalf(l))
	}
	l.await("all clients had an answer", func(c *caller) bool { return c.answered() > 0 })
	return l
}

// start connects n clients, which work until the load ends.
func (l *load) start(n int, work func(*caller, int)) {
	l.t.Helper()
	for i := range n {
		c := l.connect()
		l.loops.Go(func() { work(c, i) })
	}
}

// through calls do, which acts on the daemon. It checks that all clients get that many BACKs and no
// other disturbance.
func (l *load) through(what string, backs int, do func()) {
	l.t.Helper()
	l.line.form()
	for _, h := range l.halves {
		h.begin()
	}
	before := map[*caller]int{}
	for _, c := range l.callers {
		before[c] = c.backs()
	}
	r := l.begin(what)
	do()
	l.await(what+": all clients heard BACK", func(c *caller) bool { return c.backs() >= before[c]+backs })
	r.to = time.Now()
	l.rounds = append(l.rounds, r)
	for _, h := range l.halves {
		h.end()
	}
	l.line.pass()
	for _, c := range l.callers {
		if got := c.backs() - before[c]; got != backs {
			l.fault("%s: %s got BACK %d times, want %d", what, c.name, got, backs)
		}
	}
	l.tell()
}

func (l *load) begin(what string) round {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = round{what: fmt.Sprint(what, " ", len(l.rounds)), from: time.Now()}
	return round{what: what, from: l.now.from}
}

// await waits until isSo is true for each client.
func (l *load) await(what string, isSo func(*caller) bool) {
	l.t.Helper()
	waitFor(l.t, what, func() bool {
		l.tell()
		return !slices.ContainsFunc(l.callers, func(c *caller) bool { return !isSo(c) })
	})
}

// end ends the clients and reports their faults.
func (l *load) end() {
	l.t.Helper()
	close(l.over)
	awaitAll(l.t, 4*patience, &l.loops, "all clients to come to their ends", l.waiting)
	for _, c := range l.callers {
		c.bid()
	}
	l.hangUp()
	l.tell()
	l.report()
}

// hang is called if a request is not answered in time. Then no client waits for an answer any more:
// each would wait in vain.
func (l *load) hang() { l.hanging.Do(func() { close(l.hung) }) }

// waiting returns the requests without an answer.
func (l *load) waiting() string {
	var all []string
	for _, c := range l.callers {
		for _, r := range c.lost() {
			all = append(all, c.name+": "+r.text)
		}
	}
	return strings.Join(all, "\n")
}

// report logs the measurements of the clients.
func (l *load) report() {
	l.t.Helper()
	requests, repeats := 0, 0
	lost := map[string]int{} // by round and verb
	for _, c := range l.callers {
		requests, repeats = requests+c.count, repeats+c.repeats
		for _, r := range c.lost() {
			verb, _, _ := strings.Cut(r.text, " ")
			lost[l.during(r.first)+": "+verb]++
		}
	}
	grants, handed := l.book.counts()
	l.t.Logf("measured: %d clients, %d rounds, %d requests, %d grants (%d after another client), %d repeats; answers lost: %v",
		len(l.callers), len(l.rounds), requests, grants, handed, repeats, lost)
}

// during returns the round in which a request was sent.
func (l *load) during(at time.Time) string {
	for _, r := range l.rounds {
		if at.Before(r.to) {
			return r.what
		}
	}
	return "the end"
}

// pause returns the p99 of the pauses in rounds of that kind. A pause is the longest time that a
// client waited for an answer from memory.
func (l *load) pause(what string) time.Duration {
	l.t.Helper()
	var pauses []time.Duration
	for _, r := range l.rounds {
		for _, c := range l.callers {
			if longest, asked := c.pause(r); asked && r.what == what {
				pauses = append(pauses, longest)
			}
		}
	}
	if len(pauses) == 0 {
		l.t.Errorf("%s: no client sent a request meanwhile", what)
		return 0
	}
	p99 := percentile(pauses, 99)
	l.t.Logf("measured: %s: pause of a request p50 %v, p99 %v, longest %v (%d pauses)",
		what, percentile(pauses, 50), p99, percentile(pauses, 100), len(pauses))
	return p99
}

// quiet returns the p99 of answers from memory between the rounds. It shows how fast the machine
// is.
func (l *load) quiet() time.Duration {
	l.t.Helper()
	var took []time.Duration
	for _, c := range l.callers {
		for _, s := range c.samples {
			if !slices.ContainsFunc(l.rounds, s.in) {
				took = append(took, s.took)
			}
		}
	}
	p99 := percentile(took, 99)
	l.t.Logf("measured: an answer from memory while nothing is done to the daemon: p50 %v, p99 %v", percentile(took, 50), p99)
	return p99
}

func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, (len(sorted)*p+99)/100-1)].Round(time.Millisecond)
}

// fault records a fault. Any goroutine may call it.
func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	when := ""
	if l.now.what != "" {
		when = fmt.Sprintf(" (%v after the beginning of %s)", time.Since(l.now.from).Round(time.Millisecond), l.now.what)
	}
	l.faults = append(l.faults, fmt.Sprintf(format, args...)+when)
}

// tell fails the test with the faults since its previous call.
func (l *load) tell() {
	l.t.Helper()
	const enough = 20
	l.mu.Lock()
	fresh := l.faults[l.told:]
	l.told = len(l.faults)
	l.mu.Unlock()
	for _, fault := range fresh[:min(len(fresh), enough)] {
		l.t.Error(fault)
	}
	if len(fresh) > enough {
		l.t.Fatalf("and %d faults more", len(fresh)-enough)
	}
}

// hangUp closes all connections.
func (l *load) hangUp() {
	for _, c := range l.callers {
		c.close()
	}
}
