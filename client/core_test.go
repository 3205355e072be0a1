package client

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// The core does no I/O, starts no goroutine and reads no clock.
func TestCoreHasNoIO(t *testing.T) {
	for _, file := range []string{"core.go", "call.go", "tags.go", "answer.go", "life.go", "timers.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			if path := strings.Trim(imported.Path.Value, `"`); slices.Contains([]string{"net", "os", "context", "sync", "golang.org/x/sys/unix"}, path) || strings.HasSuffix(path, "boottime") {
				t.Errorf("%s imports %s", file, path)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", file)
			case *ast.SelectorExpr:
				if from, ok := n.X.(*ast.Ident); ok && from.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s", file, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// A lease that has ended is never held again, whatever happens. What is over is unlocked at most once more,
// if the daemon has it after all.
func TestLeaseThatHasEndedIsNotHeldAgain(t *testing.T) {
	for event, row := range steps {
		for from, to := range row {
			from := leaseState(from)
			switch {
			case to == leaseNew:
			case from == leaseNew:
				t.Errorf("event %d changes a lease that was not granted to %d", event, to)
			case !from.isHeld() && to.isHeld():
				t.Errorf("event %d makes a lease that has ended (%d) held (%d)", event, from, to)
			case from == leaseUnlocking && to != leaseOver && to != leaseStopping && to != leaseUnreleased:
				t.Errorf("event %d ends an UNLOCK in progress with %d", event, to)
			}
		}
	}
}

// testCore is a core on a connection, with its own time.
type testCore struct {
	core
	t testing.TB
}

func newTestCore(t testing.TB) *testCore {
	c := &testCore{t: t}
	c.init("t.")
	c.now = bootAt
	c.connected(daemonClock{}, false)
	return c
}

// say passes lines of the daemon to the core.
func (c *testCore) say(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		var r ipc.Response
		if err := ipc.ParseResponse([]byte(line), &r); err != nil {
			c.t.Fatal(err)
		}
		if err := c.line(&r); err != nil {
			c.t.Errorf("%q: %v", line, err)
		}
	}
}

// expect checks what the core wants to send.
func (c *testCore) expect(wanted ...string) {
	c.t.Helper()
	if got := strings.Join(c.sent(), "; "); got != strings.Join(wanted, "; ") {
		c.t.Errorf("the core sends %q, want %q", got, wanted)
	}
}

// sent returns the lines that the core wants to send since the last time.
func (c *testCore) sent() (lines []string) {
	if len(c.out) > 0 {
		lines = strings.Split(strings.TrimSuffix(string(c.out), "\n"), "\n")
	}
	c.out = nil
	return lines
}

// until lets time pass, and runs the timers that come due.
func (c *testCore) until(at time.Duration) {
	for len(c.timers) > 0 && c.timers[0].when <= bootAt+at {
		c.now = max(c.now, c.timers[0].when)
		c.runTimers()
	}
	c.now = bootAt + at
}

// lock begins a LOCK.
func (c *testCore) lock(hold Hold, names ...string) *call {
	cl := newCall(ipc.VerbLock, strings.Join(names, ","))
	cl.req.Names = names
	cl.req.Hold = map[Hold]ipc.Hold{HoldConn: ipc.HoldConn, HoldTTL: ipc.HoldTTL, HoldPID: ipc.HoldPID}[hold]
	cl.lease = &Lease{name: cl.lockName, hold: hold, lateCheck: defaultLateCheck}
	c.begin(cl)
	return cl
}

// granted begins a LOCK, and grants it.
func (c *testCore) grantedLease(hold Hold) *Lease {
	c.t.Helper()
	cl := c.lock(hold, "job")
	c.sent()
	c.say(grant(c.flight.tags[cl.tags[0]].text, "job", "abc", c.now-bootAt, ttl))
	if err := c.taken(cl.lease); err != nil {
		c.t.Fatal(err)
	}
	return cl.lease
}

// If a lock is granted, and Close begins before Lock returns it, it is unlocked: nobody would.
func TestGrantThatIsNotTakenIsUnlockedByClose(t *testing.T) {
	for _, hold := range []Hold{HoldConn, HoldTTL, HoldPID} {
		c := newTestCore(t)
		cl := c.lock(hold, "job")
		c.sent()
		c.say(grant("0", "job", "abc", 0, ttl))
		c.closeCalls()
		c.expect("@0 UNLOCK lease=abc")
		if !c.isReleasing() {
			t.Errorf("hold %d: Close does not wait for the release", hold)
		}
		want(t, "Lock", c.taken(cl.lease), ErrClosed)
		c.say("@0 OK")
		if c.isReleasing() || len(c.leases) > 0 {
			t.Errorf("hold %d: %d leases are left", hold, len(c.leases))
		}
	}
}

// A lease that Lock has returned is not unlocked by Close, even if its process keeps it.
func TestCloseUnlocksNoLeaseInUse(t *testing.T) {
	c := newTestCore(t)
	c.grantedLease(HoldPID)
	c.closeCalls()
	c.expect()
}

// The daemon may keep a lease that ended here while its RESUME was in progress. Whichever is first, it is
// unlocked once, and not before its holder has stopped or its deadline has passed.
func TestLeaseEndsDuringResume(t *testing.T) {
	for _, answer := range []string{" ERR NOQUORUM", ""} {
		for _, unlocks := range []bool{true, false} {
			c := newTestCore(t)
			l := c.grantedLease(HoldConn)
			c.ended(c.link, fmt.Errorf("reset"), nil)
			if want(t, "the end here", l.cause, ErrLost); l.state != leaseEnded {
				t.Errorf("a connection that ended here leaves the state %d", l.state)
			}
			c = newTestCore(t)
			l = c.grantedLease(HoldConn)
			c.bye = true // so that the daemon ends the connection
			c.ended(c.link, errSilent, nil)
			c.connected(daemonClock{}, false)
			c.expect("@0 RESUME job owner= lease=abc")
			c.until(overAfter)
			want(t, "the lease", l.cause, ErrLost)
			c.sent() // its CHECK, which has waited
			if unlocks {
				c.release(newCallAbout(l, ipc.VerbUnlock))
				c.expect()
			}
			if answer == "" {
				c.say(grant("0", "job", "abc", overAfter, ttl))
			} else {
				c.say("@0" + answer)
			}
			if !unlocks {
				c.expect()
				c.until(ttl)
			}
			if sent := c.sent(); len(sent) != 1 || !strings.HasSuffix(sent[0], " UNLOCK lease=abc") {
				t.Errorf("RESUME answered %q, unlocked %v: the core sends %q, want UNLOCK", answer, unlocks, sent)
			}
		}
	}
}

// Timers run in the order of their times.
func TestTimers(t *testing.T) {
	var all timers
	var ran []time.Duration
	random := rand.New(rand.NewPCG(1, 2))
	ones := make([]timer, 500)
	for i := range ones {
		ones[i].run = func() { ran = append(ran, ones[i].when) }
		all.start(&ones[i], time.Duration(random.IntN(1000)))
	}
	for i := range ones {
		switch i % 3 {
		case 0:
			all.stop(&ones[i])
			all.stop(&ones[i])
		case 1:
			all.start(&ones[i], time.Duration(random.IntN(1000)))
		}
	}
	for one := all.due(999); one != nil; one = all.due(999) {
		one.run()
	}
	if len(all) > 0 || len(ran) != 333 || !slices.IsSorted(ran) {
		t.Errorf("%d timers ran, %d are left, want 333 in their order", len(ran), len(all))
	}
}

// The timer of the Client stops while the host is suspended. A lease that is granted after that does not
// wait for it.
func TestTimerAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "long", WithTTL(time.Hour)) })
		d.say(grant(d.expectTagged("LOCK long ttl=3600000 owner=1 id=t.1")[1:], "long", "abc", 0, time.Hour))
		locked.must(t)
		d.slept.Store(int64(2 * time.Hour)) // its timer was due after 24 minutes
		next := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithTTL(ttl)) })
		var lease string
		for lease == "" {
			tag, line := d.tagged()
			switch {
			case strings.HasPrefix(line, "CHECK"):
				d.say("@" + tag + " ERR LOST lease=abc")
			default:
				lease = "def"
				d.say(grant(tag, "job", lease, d.elapsed()+2*time.Hour, ttl))
			}
		}
		next.must(t)
		for {
			if tag, line := d.tagged(); line == "CHECK lease=def" {
				d.at("CHECK", checkAfter)
				break
			} else {
				d.say("@" + tag + " ERR LOST lease=abc")
			}
		}
	})
}

// Whatever happens in whichever order, each caller continues once, the counts of requests in flight are
// right, and a lease that has ended stays ended. After the last answer nothing is left.
func TestAnyOrderOfEvents(t *testing.T) {
	for seed := range uint64(3000) {
		anyOrder(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func anyOrder(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	c := newTestCore(t)
	var calls []*call
	answered := map[*call]bool{}
	ended := map[*Lease]bool{}
	open := map[string]string{} // requests that the daemon has not answered, by tag
	leases := 0
	begin := func(cl *call) {
		calls = append(calls, cl)
		c.begin(cl)
	}
	answer := func(tag string) {
		req := open[tag]
		delete(open, tag)
		lease := req[strings.LastIndexByte(req, '=')+1:]
		switch code := []string{"HELD", "NOQUORUM", "LIMIT", "LOST", "NOTHELD", "SHUTDOWN"}[random.IntN(6)]; {
		case random.IntN(3) == 0:
			c.say("@" + tag + " ERR " + code)
		case strings.HasPrefix(req, "LOCK"):
			leases++
			c.say(grant(tag, "job", fmt.Sprint("L", leases), c.now-bootAt, ttl))
		case strings.HasPrefix(req, "UNLOCK"), strings.HasPrefix(req, "PING"), strings.HasPrefix(req, "FORCE"):
			c.say("@" + tag + " OK")
		default:
			c.say(grant(tag, "job", lease, c.now-bootAt, ttl))
		}
	}
	for step := range 200 {
		var lease *Lease
		if calls != nil {
			if cl := calls[random.IntN(len(calls))]; cl.lease != nil && cl.lease.id != "" {
				lease = cl.lease
			}
		}
		switch n := random.IntN(16); {
		case step > 150 && n < 10, n < 4:
			for tag := range open { // one of them
				answer(tag)
				break
			}
		case step > 150:
		case n < 6:
			begin(func() *call {
				cl := newCall(ipc.VerbLock, "job")
				hold := Hold(random.IntN(3))
				cl.req.Names, cl.req.Hold = []string{"job"}, map[Hold]ipc.Hold{HoldTTL: ipc.HoldTTL, HoldPID: ipc.HoldPID}[hold]
				cl.lease = &Lease{name: "job", hold: hold, lateCheck: defaultLateCheck}
				return cl
			}())
		case n < 7:
			begin(newCall([]ipc.Verb{ipc.VerbPing, ipc.VerbForce}[random.IntN(2)], ""))
		case n < 9 && lease != nil:
			cl := newCallAbout(lease, ipc.VerbUnlock)
			if c.release(cl) == nil {
				calls = append(calls, cl)
			}
		case n < 10 && lease != nil:
			if lease.endedError(ipc.VerbCheck) == nil {
				begin(newCallAbout(lease, []ipc.Verb{ipc.VerbCheck, ipc.VerbExtend, ipc.VerbBeat}[random.IntN(3)]))
			}
		case n < 11 && calls != nil:
			if cl := calls[random.IntN(len(calls))]; !answered[cl] && c.leave(cl) {
				answered[cl] = true
			}
		case n < 12 && c.link != 0:
			c.bye = random.IntN(2) == 0
			c.ended(c.link, errSilent, nil)
			clear(open)
		case n < 13 && c.link == 0:
			if random.IntN(3) == 0 {
				c.attemptFailed(errNobody)
			} else {
				c.connected(daemonClock{}, false)
			}
		case n < 14 && c.link != 0:
			c.say("BACK")
		case n < 15 && lease != nil && c.link != 0:
			c.say("LOST lock=job lease=" + lease.id + " reason=quorum")
		default:
			link := c.link
			c.until(c.now - bootAt + time.Duration(random.IntN(2000))*time.Millisecond)
			if c.link != link {
				clear(open)
			}
		}
		if step > 150 && c.link == 0 {
			c.connected(daemonClock{}, false)
		}
		for _, line := range c.sent() {
			if tag, req, ok := strings.Cut(line, " "); ok && strings.HasPrefix(tag, "@") {
				if open[tag[1:]] != "" {
					t.Errorf("tag %s is in flight twice", tag)
				}
				open[tag[1:]] = req
			}
		}
		inFlight := [roomCount]int{}
		for cl := range c.flight.calls() {
			inFlight[cl.room()]++
		}
		if inFlight != c.busy {
			t.Errorf("%v requests are in flight, and %v are counted", inFlight, c.busy)
		}
		for cl := c.effects.answered; cl != nil; cl = cl.next {
			if answered[cl] {
				t.Errorf("%s has two answers", cl.op())
			}
			answered[cl] = true
			if l := cl.lease; l != nil && cl.mayBeGranted() && cl.err == nil {
				_ = c.taken(l)
			}
		}
		c.effects.answered, c.effects.ended = nil, nil
		for _, cl := range calls {
			if l := cl.lease; l != nil && l.id != "" {
				if ended[l] && (l.cause == nil || l.state.isHeld()) {
					t.Errorf("the lease %s is held again", l.id)
				}
				ended[l] = l.cause != nil
				if (l.cause == nil) != l.state.isHeld() {
					t.Errorf("the lease %s in state %d has the cause %v", l.id, l.state, l.cause)
				}
			}
		}
	}
	c.closeCalls()
	c.hangUp()
	c.core.close()
	for cl := c.effects.answered; cl != nil; cl = cl.next {
		answered[cl] = true
	}
	for _, cl := range calls {
		if !answered[cl] {
			t.Errorf("the caller of %s still waits", cl.op())
		}
	}
	if len(c.leases) > 0 || c.busy != [roomCount]int{} {
		t.Errorf("%d leases and %v requests are left", len(c.leases), c.busy)
	}
}

// A context that is done at any moment leaves nothing: the call is cancelled, or its grant unlocked.
func TestContextEndsAtEachStep(t *testing.T) {
	for _, steps := range []int{0, 1, 2, 3, 4} {
		c := newTestCore(t)
		cl := c.lock(HoldPID, "job")
		for i, step := range []func(){
			func() { c.say("BACK") },
			func() { c.ended(c.link, context.Canceled, nil) },
			func() { c.connected(daemonClock{}, false) },
			func() { c.until(time.Second) },
		} {
			if i < steps {
				step()
			}
		}
		if !c.leave(cl) {
			t.Fatalf("after %d steps the caller has an answer: %v", steps, cl.err)
		}
		if c.link == 0 {
			c.connected(daemonClock{}, false)
		}
		c.sent()
		tag := c.flight.tags[cl.tags[len(cl.tags)-1]].text
		c.say(grant(tag, "job", "abc", time.Second, ttl))
		if sent := c.sent(); len(sent) != 1 || !strings.HasSuffix(sent[0], " UNLOCK lease=abc") {
			t.Errorf("after %d steps the core sends %q, want UNLOCK", steps, sent)
		}
	}
}

// Close also ends the calls that wait for room, however many there are.
func TestCloseEndsCallsThatWaitForRoom(t *testing.T) {
	c := newTestCore(t)
	var calls []*call
	for range maxInFlight[roomOther] {
		calls = append(calls, newCall(ipc.VerbPing, ""))
	}
	for range 3 * maxInFlight[roomLock] {
		cl := newCall(ipc.VerbLock, "job")
		cl.req.Names, cl.lease = []string{"job"}, &Lease{name: "job"}
		calls = append(calls, cl)
	}
	for _, cl := range calls {
		c.begin(cl)
	}
	c.closeCalls()
	c.hangUp()
	c.core.close()
	for _, cl := range calls {
		if cl.state != callEnded || cl.err == nil {
			t.Fatalf("a %s is left in state %d, with the error %v", cl.op(), cl.state, cl.err)
		}
	}
}

// The clock of other events may notice a suspension late. The timer of a lease does not.
func TestTimerNoticesASuspensionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		c.eventTime = func() time.Duration { return bootAt + d.elapsed() }
		l := d.lock(c, "job", "abc", WithLateCheck(0))
		d.slept.Store(int64(time.Hour))
		<-l.Context().Done()
		d.at("the end of the lease", checkAfter)
		d.expectTagged("UNLOCK lease=abc")
	})
}
