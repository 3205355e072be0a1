package redlocktest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

var connectionCases = []conformanceCase{
	{"CLIENT KILL breaks the other connection", []Feature{ClientID, ClientKill}, checkKill},
	{"groups in transit are answered in order", nil, checkPipeline},
	{"a connection breaks with three groups in transit", []Feature{Hanging, ClientID, ClientKill}, checkBreakInTransit},
	{"hung: groups in transit are executed later, in order", []Feature{Hanging}, checkHungInTransit},
	{"a closed connection fails", nil, checkClosed},
	{"an ended context fails", nil, checkEndedContext},
	{"down", nil, checkDown},
	{"hung: Do returns by the deadline, and the node executes the group later", []Feature{Hanging}, checkHung},
	{"hung: Dial returns by the deadline", []Feature{Hanging}, checkHungDial},
	{"hung: Close ends Do", []Feature{Hanging}, checkCloseDuringDo},
	{"hung: an acquire is too late after the client gave up", []Feature{Hanging}, checkHungLate},
}

// deadline is how long the suite waits for a hung node. It is much less than patience.
const deadline = 50 * time.Millisecond

func checkKill(p *probe) {
	other := p.on(p.dial())
	id := strconv.FormatInt(other.do("CLIENT", "ID").Int, 10)
	p.expect(number(1), "CLIENT", "KILL", "ID", id)
	other.expectBroken()
	p.expect(number(0), "CLIENT", "KILL", "ID", id)

	self := strconv.FormatInt(p.do("CLIENT", "ID").Int, 10)
	p.expect(number(0), "CLIENT", "KILL", "ID", self)
	p.expect(failed("ERR"), "CLIENT", "KILL", "ID", "0")
	p.expect(text("PONG"), "PING")
}

// inTransit is how many groups the cases below have in transit.
const inTransit = 3

// send sends a group without waiting for the replies.
func (p *probe) send(group ...redlock.Command) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if err := p.conn.Send(ctx, group); err != nil {
		p.Fatalf("Send of %q: %v", group, err)
	}
}

// receive waits for the n replies to the oldest group.
func (p *probe) receive(within time.Duration, n int) ([]redlock.Reply, error) {
	ctx, cancel := context.WithTimeout(p.Context(), within)
	defer cancel()
	replies := make([]redlock.Reply, n)
	return replies, p.conn.Receive(ctx, replies)
}

// checkPipeline sends groups in one goroutine while another one receives.
func checkPipeline(p *probe) {
	const groups = 100
	large := strings.Repeat("x", 20<<10) // larger than an ordinary group
	sent := make(chan string, groups)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(sent)
		for i := range groups {
			value := strconv.Itoa(i)
			if i%10 == 3 {
				value += large
			}
			p.send(redlock.Command{"SET", "k", value}, redlock.Command{"GET", "k"}, redlock.Command{"NONSENSE"})
			sent <- value
		}
	})
	for want := range sent {
		replies, err := p.receive(patience, 3)
		if err != nil {
			p.Fatalf("Receive: %v", err)
		}
		if replies[0].Str != "OK" || replies[1].Str != want || replies[2].Err == nil {
			p.Errorf("got %s, %s and %s, want OK, %.10q and an error", show(replies[0]), show(replies[1]), show(replies[2]), want)
		}
	}
	wg.Wait()
	p.expect(text("PONG"), "PING")
}

// checkBreakInTransit kills a connection with three groups in transit to a hung node. None of them
// is answered.
func checkBreakInTransit(p *probe) {
	lane := p.on(p.dial())
	id := strconv.FormatInt(lane.do("CLIENT", "ID").Int, 10)
	p.node.Hang()
	p.send(redlock.Command{"CLIENT", "KILL", "ID", id}) // executed first, because this connection is older
	for i := range inTransit {
		lane.send(redlock.Command{"SET", strconv.Itoa(i), "v"})
	}
	lane.conn.Close()
	for range inTransit {
		if replies, err := lane.receive(patience, 1); err == nil {
			p.Errorf("a group was answered after the connection was closed: %s", show(replies[0]))
		}
	}
	p.node.Resume()
	if _, err := p.receive(patience, 1); err != nil {
		p.Fatal(err)
	}
	// The node may have executed some groups before it ended the connection, but executes none
	// later.
	before := p.do("EXISTS", "0", "1", "2").Int
	for range 10 {
		p.expect(number(before), "EXISTS", "0", "1", "2")
	}
}

func checkHungInTransit(p *probe) {
	lane := p.on(p.dial())
	p.node.Hang()
	for i := range inTransit {
		lane.send(redlock.Command{"SET", "k", strconv.Itoa(i)}, redlock.Command{"SET", "last", strconv.Itoa(i)})
	}
	begin := time.Now()
	if _, err := lane.receive(deadline, 2); !errors.Is(err, context.DeadlineExceeded) {
		p.Errorf("Receive from a hung node: got error %v, want %v", err, context.DeadlineExceeded)
	}
	p.expectInTime(begin)
	if _, err := lane.receive(patience, 2); err == nil {
		p.Error("a connection answers after Receive timed out")
	}
	p.node.Resume()
	p.eventually("execution of the groups that were sent to the hung node", func() bool {
		return p.do("GET", "last").Str == strconv.Itoa(inTransit-1)
	})
	p.expect(text(strconv.Itoa(inTransit-1)), "GET", "k")
}

func checkClosed(p *probe) {
	other := p.on(p.dial())
	other.expect(text("OK"), "SET", "k", "v")
	other.conn.Close()
	other.expectBroken()
	other.conn.Close() // a second Close does no harm
	p.expect(text("v"), "GET", "k")
}

func checkEndedContext(p *probe) {
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	var reply [1]redlock.Reply
	if err := p.conn.Do(ctx, []redlock.Command{{"SET", "k", "v"}}, reply[:]); !errors.Is(err, context.Canceled) {
		p.Errorf("Do with an ended context: got error %v, want %v", err, context.Canceled)
	}
}

func checkDown(p *probe) {
	p.node.Down()
	p.expectBroken()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if conn, err := p.node.Node().Dial(ctx); err == nil {
		conn.Close()
		p.Error("Dial of a node that is down succeeded")
	}
	if ctx.Err() != nil {
		p.Errorf("Dial of a node that is down took %v", patience)
	}
	p.node.Up()
	p.on(p.dial()).expect(text("PONG"), "PING")
	p.expectBroken() // a connection does not recover
}

func checkHung(p *probe) {
	givenUp, closed := p.on(p.dial()), p.on(p.dial())
	p.node.Hang()
	givenUp.expectNoReply(redlock.Command{"SET", "given up", "v"})
	givenUp.expectBroken()
	closed.expectNoReply(redlock.Command{"SET", "closed", "v"})
	closed.conn.Close()
	p.node.Resume()
	p.eventually("execution of the groups that were sent to the hung node", func() bool {
		return p.do("EXISTS", "given up", "closed").Int == 2
	})
}

// expectNoReply checks that Do fails at its deadline.
func (p *probe) expectNoReply(group ...redlock.Command) {
	p.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	err := p.conn.Do(ctx, group, make([]redlock.Reply, len(group)))
	if !errors.Is(err, context.DeadlineExceeded) {
		p.Errorf("%q at a hung node: got error %v, want %v", group, err, context.DeadlineExceeded)
	}
	p.expectInTime(begin)
}

func (p *probe) expectInTime(begin time.Time) {
	p.Helper()
	if took := time.Since(begin); took < deadline || took > patience/2 {
		p.Errorf("the call to a hung node took %v, want the deadline of %v", took, deadline)
	}
}

func checkHungDial(p *probe) {
	p.node.Hang()
	defer p.node.Resume()
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	conn, err := p.node.Node().Dial(ctx)
	if err != nil { // the node did not answer the log-in
		return
	}
	defer conn.Close()
	begin := time.Now()
	if p.on(conn).pingUntil(ctx) == nil {
		p.Error("a hung node answered PING")
	}
	if took := time.Since(begin); took > patience/2 {
		p.Errorf("PING at a hung node took %v, want at most %v", took, deadline)
	}
}

func (p *probe) pingUntil(ctx context.Context) error {
	var reply [1]redlock.Reply
	return p.conn.Do(ctx, []redlock.Command{{"PING"}}, reply[:])
}

func checkCloseDuringDo(p *probe) {
	p.node.Hang()
	defer p.node.Resume()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(p.conn.Close) // before or during Do
	if err := p.pingUntil(ctx); err == nil || ctx.Err() != nil {
		p.Errorf("PING while the connection is closed: got error %v, want one at once", err)
	}
}

func checkHungLate(p *probe) {
	p.admit()
	lane := p.on(p.dial())
	soon := strconv.FormatInt(p.micros()+deadline.Microseconds()/2, 10)
	acquire := scriptCall(luaScript(p, "ballot").SHA, anEpoch, soon, opAcquire("k", "mine", minute))
	p.node.Hang()
	lane.expectNoReply(acquire, redlock.Command{"SET", "after", "v"})
	p.node.Resume()
	p.eventually("execution of the groups that were sent to the hung node", func() bool {
		return p.do("EXISTS", "after").Int == 1
	})
	p.expect(number(0), "EXISTS", "k")
}
