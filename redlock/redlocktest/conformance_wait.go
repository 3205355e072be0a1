package redlocktest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// waitCases are the cases of hand-overs, of clients that wait for a lock, and of the messages to them.
var waitCases = []conformanceCase{
	{"hand over", nil, checkHandOver},
	{"hand over as an acquire", nil, checkHandOverAcquires},
	{"a refused client enters the queue", nil, checkEnter},
	{"the queue is in the order of tickets", nil, checkOrder},
	{"a ticket far ahead", nil, checkTicketAhead},
	{"a release calls the first waiter", []Feature{Messages}, checkCalled},
	{"each end of a lock calls the first waiter", []Feature{Messages}, checkCalledByEachEnd},
	{"a lock is free for the waiter whose turn it is", nil, checkTurn},
	{"a turn that is not used passes", nil, checkTurnPasses},
	{"a turn ends in spite of a clock that is set back", nil, checkTurnAfterClockSetBack},
	{"a waiter of a host that is gone gets no turn", nil, checkHostGone},
	{"a free lock with a queue and no turn", []Feature{Messages}, checkNoTurn},
	{"a client enters again before it gives up votes", nil, checkReenter},
	{"a waiter leaves", []Feature{Messages}, checkEndWait},
	{"a waiter enters again before the one whose turn it is", []Feature{Messages}, checkTurnStays},
	{"a grant reports waiters", nil, checkWanted},
	{"readers do not overtake a writer", nil, checkWriterWaits},
	{"readers are called together", []Feature{Messages}, checkReadersCalled},
	{"more readers than one call names", []Feature{Messages}, checkManyReadersCalled},
	{"many entries of few hosts", []Feature{Messages}, checkManyEntriesOfHosts},
	{"a free slot calls one waiter", []Feature{Messages}, checkSlotCalls},
	{"a waiter for several names", []Feature{Messages}, checkSeveralWait},
	{"a waiter for several names and an earlier ticket", nil, checkSeveralByTicket},
	{"many entries of hosts that are gone", []Feature{Messages}, checkManyGone},
	{"keys of the queue with a wrong type", nil, checkQueueWrongType},
	{"entries of another version", nil, checkOtherEntries},
	{"a node looks for waiters only if there are any", nil, checkQueues},
	{"a listener gets the messages of its channel", []Feature{Messages}, checkListener},
	{"a listener that is closed", []Feature{Messages}, checkListenerClosed},
	{"a listener of a node that goes down", []Feature{Messages}, checkListenerDown},
}

func opHandOver(key, old, token, ttl string) scriptOp {
	return scriptOp{"h", key, []string{old, token, ttl}, recordText("aa", 1)}
}

func opEnter(key, entry string, ticket int64) scriptOp {
	return scriptOp{letter: "i", key: key, args: []string{entry, strconv.FormatInt(ticket, 10)}}
}

func opReenter(key, entry string, ticket int64) scriptOp {
	return scriptOp{letter: "k", key: key, args: []string{entry, strconv.FormatInt(ticket, 10)}}
}

func opEndWait(key, entry string) scriptOp {
	return scriptOp{letter: "d", key: key, args: []string{entry}}
}

// longTurn is longer than a test takes.
const longTurn = 60_000

// entryOf returns the entry of a host. Its token is waiter-host.
func entryOf(host, kind string, turn int) string {
	return fmt.Sprintf("%s %s %d waiter-%s", host, kind, turn, host)
}

// exclusiveEntry returns the entry of a host that waits for an exclusive lock.
func exclusiveEntry(host string) string { return entryOf(host, "-", longTurn) }

// wait makes a client wait for the lock of the acquire o. It must be refused, and be at this position.
func (p *probe) wait(o scriptOp, entry string, ticket int64, position int64) (refused redlock.Reply) {
	p.Helper()
	got := p.do(p.ballot(o, opEnter(o.key, entry, ticket))...)
	if len(got.Array) != 2 || got.Array[0].Array == nil || !same(got.Array[1], number(position)) {
		p.Fatalf("%v: got %s, want a holder and %d", o, show(got), position)
	}
	return got.Array[0]
}

// enters makes hosts wait for an exclusive lock k that another client holds, in this order.
func (p *probe) enters(hosts ...string) {
	p.Helper()
	for i, host := range hosts {
		p.wait(opAcquire("k", "token-"+host, minute), exclusiveEntry(host), int64(i+1), int64(i+1))
	}
}

// takes makes a waiter ask for the exclusive lock k.
func (p *probe) takes(host string) redlock.Reply {
	p.Helper()
	got := p.do(p.ballot(opAcquire("k", "token-"+host, minute), opEnter("k", exclusiveEntry(host), 9))...)
	if len(got.Array) != 2 {
		p.Fatalf("%s: got %s, want two replies", host, show(got))
	}
	return got.Array[0]
}

// expectGranted checks that a reply is a grant.
func (p *probe) expectGranted(what string, got redlock.Reply) {
	p.Helper()
	if got.Err != nil || got.Array != nil || got.Int == 0 {
		p.Errorf("%s: got %s, want a grant", what, show(got))
	}
}

// expectOvertakes checks that a client was refused because it would overtake the waiter of a host.
func (p *probe) expectOvertakes(what, kind, host string, got redlock.Reply) {
	p.Helper()
	if a := got.Array; len(a) != 4 || a[0].Str != kind || a[2].Str != "waiter-"+host || a[1].Int != a[3].Int || a[1].Int <= 0 {
		p.Errorf("%s: got %s, want [%q, ms, %q, ms]", what, show(got), kind, "waiter-"+host)
	}
}

// expectQueue checks the hosts in the queue of a key, in order.
func (p *probe) expectQueue(what, key string, hosts ...string) {
	p.Helper()
	var got []string
	for _, entry := range p.do("ZRANGE", key+"\x00q", "0", "-1").Array {
		host, _, _ := strings.Cut(entry.Str, " ")
		got = append(got, host)
	}
	if strings.Join(got, ",") != strings.Join(hosts, ",") {
		p.Errorf("%s: the queue has %v, want %v", what, got, hosts)
	}
	turn := p.do("EXISTS", key+"\x00t").Int == 1
	if turn != (len(hosts) > 0) {
		p.Errorf("%s: the key that shows waiters exists is %v, with the queue %v", what, turn, hosts)
	}
}

// expectTurn checks whose turn it is; "": nobody's.
func (p *probe) expectTurn(what, key, host string) {
	p.Helper()
	_, entry, _ := strings.Cut(p.do("GET", key+"\x00t").Str, " ")
	if got, _, _ := strings.Cut(entry, " "); got != host {
		p.Errorf("%s: it is the turn of %q, want %q", what, got, host)
	}
}

// hold takes k for another client.
func (p *probe) hold(token string) {
	p.Helper()
	p.expectGranted(token, p.vote(p.ballot(opAcquire("k", token, minute))))
}

func checkHandOver(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "old", "120000")))
	p.expectVote(number(2), p.ballot(opHandOver("k", "old", "new", minute)))
	p.expect(text("new"), "GET", "k")
	p.expectTTL("k", 50*time.Second, time.Minute) // the ttl of the new token, all of it
	p.expectVote(number(0), p.ballot(opExtend("k", "old", minute)))
	p.expectVote(number(0), p.ballot(opRelease("k", "old")))
	p.expectVote(failed("LATE"), p.late(opHandOver("k", "new", "newer", minute)))
	p.expectVote(failed("ERR"), p.ballot(opHandOver("k", "new", "newer", "0")))
	p.expectVote(failed("ERR"), p.ballot(opHandOver("free", "new", "newer", "0")))
	p.expect(text("new"), "GET", "k")
	p.expectCounter("aa", 2)
}

func checkHandOverAcquires(p *probe) {
	p.admit()
	p.expectVote(list(number(1)), p.ballot(opHandOver("k", "old", "new", minute)))
	p.expect(text("new"), "GET", "k")
	p.expectHeld("new", p.vote(p.ballot(opHandOver("k", "old", "theirs", minute))))
	p.expectVote(list(number(2)), p.ballot(opHandOver("k", "old", "new", minute))) // again
	p.expect(text("new"), "GET", "k")
	p.expectCounter("aa", 2)
}

func checkEnter(p *probe) {
	p.admit()
	p.expect(list(number(1), number(0)), p.ballot(opAcquire("k", "mine", minute), opEnter("k", exclusiveEntry("a"), 1))...)
	p.expectQueue("a grant", "k")
	p.expect(list(failed("LATE"), number(0)), p.late(opAcquire("k", "theirs", minute), opEnter("k", exclusiveEntry("a"), 1))...)
	p.expectQueue("an acquire that came too late", "k")
	p.expectHeld("mine", p.wait(opAcquire("k", "theirs", minute), exclusiveEntry("a"), 1, 1))
	p.expectQueue("a refusal", "k", "a")
	p.expectTTL("k\x00q", 50*time.Second, time.Minute)
	p.expectTTL("k\x00t", 50*time.Second, time.Minute)
	p.expectTTL("redlockd:host:a", 3*time.Second, 4*time.Second)
	p.expectHeld("mine", p.wait(opAcquire("k", "again", minute), exclusiveEntry("a"), 5, 1))
	p.expect(number(1), "ZCOUNT", "k\x00q", "5", "5") // its place follows from its ticket
	p.expect(list(failed("ERR"), number(0)), p.ballot(opAcquire("k", "mine", "x"), opEnter("k", exclusiveEntry("a"), 1))...)
	got := p.do(p.ballot(opAcquire("k", "theirs", minute), opEnter("k", "no entry", 1))...)
	if len(got.Array) != 2 || !same(got.Array[1], number(0)) {
		p.Errorf("an entry that is none: got %s, want position 0", show(got))
	}
	p.expectQueue("an entry that is none", "k", "a")
}

func checkOrder(p *probe) {
	p.admit()
	p.hold("mine")
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("late"), 1795247588000002, 1)
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("early"), 1795247588000001, 1)
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("equal"), 1795247588000002, 2) // by its entry
	p.expectQueue("three waiters", "k", "early", "equal", "late")
}

// checkTicketAhead checks that a ticket cannot be far ahead of the node's clock: it counts as a second
// ahead.
func checkTicketAhead(p *probe) {
	p.admit()
	p.hold("mine")
	now := p.micros()
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("ahead"), now+time.Hour.Microseconds(), 1)
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("nearly"), now+500_000, 1)
	p.expect(number(2), "ZCOUNT", "k\x00q", strconv.FormatInt(now, 10), strconv.FormatInt(p.micros()+1_000_000, 10))
}

// inbox is a listener and the messages that it got, without keys and entries: "turn a", "next b".
type inbox struct {
	redlock.Listener
	messages chan string
}

// listen makes a listener of a host. It is closed at the end of the case.
func (p *probe) listen(host string) *inbox {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	e := &inbox{messages: make(chan string, 1000)}
	listener, err := p.node.Node().Listen(ctx, "redlockd:host:"+host, func(message string) { e.messages <- message })
	if err != nil {
		p.Fatalf("listen: %v", err)
	}
	p.Cleanup(listener.Close)
	e.Listener = listener
	return e
}

// expectMessages checks the messages that a listener got, in order. A message to itself is the last.
func (p *probe) expectMessages(what string, e *inbox, host string, want ...string) {
	p.Helper()
	p.expect(number(1), "PUBLISH", "redlockd:host:"+host, "end")
	var got []string
	for {
		select {
		case message := <-e.messages:
			if message == "end" {
				if strings.Join(got, ", ") != strings.Join(want, ", ") {
					p.Errorf("%s: %s got the messages %q, want %q", what, host, got, want)
				}
				return
			}
			word, rest, _ := strings.Cut(message, "\x00")
			key, entry, _ := strings.Cut(rest, "\x00")
			word, _, _ = strings.Cut(word, " ")
			if to, _, _ := strings.Cut(entry, " "); to != host {
				p.Errorf("%s: %s got a message to %q", what, host, to)
			}
			got = append(got, word+" "+key)
		case <-time.After(patience):
			p.Fatalf("%s: %s got %q and no end within %v", what, host, got, patience)
		}
	}
}

func checkCalled(p *probe) {
	p.admit()
	a, b, c := p.listen("a"), p.listen("b"), p.listen("c")
	p.hold("mine")
	p.enters("a", "b", "c")
	p.expectMessages("while it is held", a, "a")
	p.expectVote(number(0), p.ballot(opRelease("k", "theirs")))
	p.expectMessages("a release of another token", a, "a")
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", minute)))
	p.expectMessages("an extension", a, "a")
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectMessages("a release", a, "a", "turn k")
	p.expectMessages("a release", b, "b", "next k")
	p.expectMessages("a release: the first two may be gone", c, "c", "next k")
	p.expectTurn("a release", "k", "a")
	p.expectGranted("the first waiter", p.takes("a"))
	p.expectMessages("a grant", b, "b")
	p.expectQueue("a grant", "k", "b", "c")
	p.expectTurn("a grant", "k", "")
	p.expectVote(number(1), p.ballot(opRelease("k", "token-a")))
	p.expectMessages("the next release", b, "b", "turn k")
	p.expectMessages("the next release", c, "c", "next k")
	p.expectGranted("the second waiter", p.takes("b"))
	p.expectGranted("the holder again", p.vote(p.ballot(opAcquire("k", "token-b", minute))))
	p.expectVote(number(1), p.ballot(opRelease("k", "token-b")))
	p.expectGranted("the last waiter", p.takes("c"))
	p.expectQueue("nobody waits", "k")
	p.expect(number(0), "EXISTS", "k\x00q", "k\x00t")
}

func checkCalledByEachEnd(p *probe) {
	p.admit()
	a := p.listen("a")
	ends := func(what string, take, end func()) {
		p.Helper()
		take()
		p.enters("a")
		end()
		p.expectMessages(what, a, "a", "turn k")
		p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("a"))))
		p.do("DEL", "k")
	}
	exclusive := func() { p.hold("mine") }
	shared := func() { p.vote(p.ballot(opJoinShared("k", "one", minute))) }
	ends("FORCE", exclusive, func() { p.vote(p.ballot(opForce("k", "mine", minute))) })
	ends("FORCE of a reader", shared, func() { p.vote(p.ballot(opForce("k", "one", minute))) })
	ends("the release of a reader", shared, func() { p.vote(p.ballot(opRelease("k", "one"))) })
	ends("a hand-over of a forced token", exclusive, func() {
		p.vote(p.ballot(opNoteForced("k", "mine", minute)))
		p.vote(p.ballot(opHandOver("k", "mine", "new", minute)))
	})
}

func checkTurn(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a", "b")
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectOvertakes("a client that does not wait", simredis.KindTurn, "a", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expectOvertakes("the second waiter", simredis.KindTurn, "a", p.takes("b"))
	p.expectOvertakes("a reader", simredis.KindTurn, "a", p.vote(p.ballot(opJoinShared("k", "theirs", minute))))
	p.expectOvertakes("a slot", simredis.KindTurn, "a", p.vote(p.ballot(opJoin("k", "1 theirs", slots3, minute))))
	p.expectOvertakes("a hand-over of an expired token", simredis.KindTurn, "a", p.vote(p.ballot(opHandOver("k", "old", "theirs", minute))))
	p.expectOvertakes("WHO", simredis.KindTurn, "a", p.vote(p.ballot(opWho("k"))))
	got := p.wait(opAcquire("k", "token-0", minute), exclusiveEntry("0"), 0, 1) // its ticket is smaller, and it came too late
	p.expectOvertakes("an earlier ticket", simredis.KindTurn, "a", got)
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(1), p.ballot(opRepair("k", "confirmed", minute, 3))) // a quorum confirmed this token, so it holds the lock
	p.expectVote(number(1), p.ballot(opRelease("k", "confirmed")))
	p.expectTurn("after that", "k", "0")
}

// passTurn waits until a turn of k has ended.
func (p *probe) passTurn() {
	p.Helper()
	p.eventually("the end of a turn of 40 ms", func() bool {
		till, _, _ := strings.Cut(p.do("GET", "k\x00t").Str, " ")
		at, _ := strconv.ParseInt(till, 10, 64)
		return at < p.micros()
	})
}

func checkTurnPasses(p *probe) {
	p.admit()
	short := entryOf("a", "-", 40)
	p.hold("mine")
	p.wait(opAcquire("k", "t", minute), short, 1, 1)
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("b"), 2, 2)
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("c"), 3, 3)
	p.vote(p.ballot(opRelease("k", "mine")))
	p.passTurn()
	p.expectOvertakes("the third waiter", simredis.KindTurn, "b", p.takes("c")) // it gives the turn to the second
	p.expectQueue("the turn passed", "k", "b", "c", "a")
	p.expectGranted("the second waiter", p.takes("b"))
	p.vote(p.ballot(opRelease("k", "token-b")))
	p.expectGranted("the third waiter", p.takes("c"))
	p.vote(p.ballot(opRelease("k", "token-c")))
	p.passTurn()
	p.expect(list(number(4), number(0)), p.ballot(opAcquire("k", "t", minute), opEnter("k", short, 1))...) // nobody took it meanwhile
	p.expectQueue("after all", "k")

	p.wait(opAcquire("k", "token-a", minute), short, 1, 1)
	p.vote(p.ballot(opRelease("k", "t")))
	p.passTurn()
	p.expectOvertakes("a client that does not wait, beside one waiter", simredis.KindTurn, "a", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
}

// checkTurnAfterClockSetBack checks that a turn that would last for longer than any turn has ended.
func checkTurnAfterClockSetBack(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a", "b")
	p.vote(p.ballot(opRelease("k", "mine")))
	p.do("SET", "k\x00t", fmt.Sprint(p.micros()+24*time.Hour.Microseconds(), " ", exclusiveEntry("a")), "PX", minute)
	p.expectGranted("the second waiter", p.takes("b"))
}

func checkHostGone(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a", "b", "c")
	p.do("DEL", "redlockd:host:a")
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectTurn("the first host is gone", "k", "b")
	p.expectQueue("the first host is gone", "k", "b", "c")
	p.do("DEL", "redlockd:host:b")
	p.expectOvertakes("the host whose turn it is dies", simredis.KindTurn, "c", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.do("DEL", "redlockd:host:c")
	p.expectGranted("all hosts are gone", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expectQueue("all hosts are gone", "k")
}

func checkNoTurn(p *probe) {
	p.admit()
	a := p.listen("a")
	p.hold("mine")
	p.enters("a")
	p.do("DEL", "k") // as if it had expired
	p.expectOvertakes("a client that does not wait", simredis.KindTurn, "a", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expectMessages("a client that does not wait", a, "a", "turn k")
	p.do("SET", "k\x00t", "0", "PX", minute)
	p.expect(list(number(2), number(0)), p.ballot(opAcquire("k", "first", minute), opEnter("k", exclusiveEntry("0"), 0))...) // it enters first, and is the first
	p.expectQueue("an earlier ticket", "k", "a")
}

// checkReenter checks that a client is in the queue before its votes are released.
func checkReenter(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("b")
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectGranted("the waiter", p.takes("b"))
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("c"), 3, 1)
	releases := scriptCall(luaScript(p, "ballot").SHA, "", "0", opReenter("k", exclusiveEntry("a"), 1), opRelease("k", "token-b"))
	p.expect(list(number(1), number(1)), releases...)
	p.expectTurn("released and entered again", "k", "a")
	p.expectQueue("released and entered again", "k", "a", "c")
}

func checkEndWait(p *probe) {
	p.admit()
	b := p.listen("b")
	p.hold("mine")
	p.enters("a", "b", "c")
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("c"))))
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("c")))) // again
	p.expectQueue("the last waiter left", "k", "a", "b")
	p.expectMessages("the last waiter left", b, "b")
	p.wait(opAcquire("k", "t", minute), exclusiveEntry("before"), 0, 1)
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("before"))))
	p.expectMessages("the first waiter left, and the lock is held", b, "b", "next k")
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("a release", b, "b", "next k")
	releases := scriptCall(luaScript(p, "ballot").SHA, "", "0", opEndWait("k", exclusiveEntry("a")))
	p.expect(list(number(1)), releases...)
	p.expectMessages("the end of the first waiter, in its turn", b, "b", "turn k")
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("b"))))
	p.expectQueue("nobody waits", "k")
	p.hold("theirs")
}

// checkTurnStays checks that it stays the turn of a waiter although an earlier one, which was passed over, enters again
// and others leave.
func checkTurnStays(p *probe) {
	p.admit()
	a, b := p.listen("a"), p.listen("b")
	p.hold("mine")
	p.enters("a", "b", "c")
	p.do("ZADD", "k\x00q", "XX", strconv.FormatInt(p.micros(), 10), exclusiveEntry("a"))
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("a release", b, "b", "turn k")
	p.expectMessages("a release", a, "a", "next k")
	p.expectOvertakes("one that was passed over", simredis.KindTurn, "b", p.wait(opAcquire("k", "token-a", minute), exclusiveEntry("a"), 1, 1))
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("c"))))
	p.expectTurn("another waiter left", "k", "b")
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("b"))))
	p.expectTurn("the one whose turn it was left", "k", "a")
	p.expectMessages("the one whose turn it was left", a, "a", "turn k")
	p.expectMessages("the one whose turn it was left", b, "b")
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("a"))))

	p.hold("mine") // and now those whose turn it is are readers
	p.enters("a")
	p.wait(opJoinShared("k", "token-b", minute), sharedEntry("b"), 2, 2)
	p.wait(opJoinShared("k", "token-c", minute), sharedEntry("c"), 3, 3)
	p.do("ZADD", "k\x00q", "XX", strconv.FormatInt(p.micros(), 10), exclusiveEntry("a"))
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("a release for readers", b, "b", "turn k")
	p.expectMessages("a release for readers", a, "a", "next k")
	p.expectOvertakes("a writer that was passed over", simredis.KindTurn, "b", p.wait(opAcquire("k", "token-a", minute), exclusiveEntry("a"), 1, 1))
	p.expectVote(number(1), p.ballot(opEndWait("k", sharedEntry("b"))))
	p.expectTurn("the first reader left", "k", "a")
	p.expectMessages("the first reader left", a, "a", "turn k")
}

func checkWanted(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a")
	p.expectVote(number(-2), p.ballot(opHandOver("k", "mine", "next", minute)))
	p.expectVote(number(2), p.ballot(opConfirm("k", "next", minute, 2)))
	p.expect(list(number(-4), number(-4)), p.ballot(opAcquireAlso("k", "next", "aa"), opAcquire("free", "next", minute))...)
	p.expectVote(number(5), p.ballot(opAcquire("k", "next", minute))) // an acquire of one name does not report waiters
	p.vote(p.ballot(opEndWait("k", exclusiveEntry("a"))))
	p.expectVote(number(6), p.ballot(opHandOver("k", "next", "mine", minute)))

	p.vote(p.ballot(opJoinShared("s", "one", minute)))
	p.wait(opJoin("s", "1 mine", slots3, minute), entryOf("a", slots3, longTurn), 1, 1)
	p.expectVote(number(-8), p.ballot(opJoinShared("s", "one", minute)))
}

// sharedEntry returns the entry of a host that waits to share a lock.
func sharedEntry(host string) string { return entryOf(host, simredis.KindShared, longTurn) }

func checkWriterWaits(p *probe) {
	p.admit()
	p.vote(p.ballot(opJoinShared("k", "one", minute)))
	p.wait(opAcquire("k", "token-w", minute), exclusiveEntry("w"), 2, 1)
	p.expectVote(number(1), p.ballot(opExtend("k", "one", minute)))
	p.expectGranted("a reader that shares the lock", p.vote(p.ballot(opJoinShared("k", "one", minute))))
	refused := p.vote(p.ballot(opJoinShared("k", "two", minute)))
	p.expectOvertakes("a reader that does not wait", simredis.KindWriter, "w", refused)
	if left := refused.Array[1].Int; left <= 50_000 || left > 60_000 {
		p.Errorf("a reader behind a writer: %d ms, want the ttl of the readers", left)
	}
	p.expectOvertakes("a reader behind the writer", simredis.KindWriter, "w", p.wait(opJoinShared("k", "two", minute), sharedEntry("r"), 3, 2))
	p.expect(list(number(-3), number(0)), p.ballot(opJoinShared("k", "three", minute), opEnter("k", sharedEntry("before"), 1))...) // it asked before the writer
	p.vote(p.ballot(opRelease("k", "three")))
	p.vote(p.ballot(opRelease("k", "one")))
	p.expectTurn("the last reader's release", "k", "w")
	p.expectGranted("the writer", p.takes("w"))
	p.vote(p.ballot(opRelease("k", "token-w")))
	p.expectTurn("the writer's release", "k", "r")
	p.expect(list(number(5), number(0)), p.ballot(opJoinShared("k", "two", minute), opEnter("k", sharedEntry("r"), 3))...)

	p.wait(opAcquire("k", "token-w", minute), exclusiveEntry("w"), 4, 1)
	p.wait(opJoinShared("k", "late", minute), sharedEntry("s"), 5, 2)
	p.vote(p.ballot(opEndWait("k", exclusiveEntry("w"))))
	p.expectTurn("the writer left", "k", "s")
}

func checkReadersCalled(p *probe) {
	p.admit()
	inboxes := map[string]*inbox{}
	for _, host := range []string{"a", "b", "w", "c"} {
		inboxes[host] = p.listen(host)
	}
	p.hold("mine")
	p.wait(opJoinShared("k", "token-a", minute), sharedEntry("a"), 1, 1)
	p.wait(opJoinShared("k", "token-b", minute), sharedEntry("b"), 2, 2)
	p.wait(opAcquire("k", "token-w", minute), exclusiveEntry("w"), 3, 3)
	p.wait(opJoinShared("k", "token-c", minute), sharedEntry("c"), 4, 4)
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("the first reader", inboxes["a"], "a", "turn k")
	p.expectMessages("the second reader", inboxes["b"], "b", "turn k")
	p.expectMessages("the writer", inboxes["w"], "w", "next k")
	p.expectMessages("the reader behind it", inboxes["c"], "c", "next k")
	take := func(host string, ticket int64) redlock.Reply {
		return p.do(p.ballot(opJoinShared("k", "token-"+host, minute), opEnter("k", sharedEntry(host), ticket))...).Array[0]
	}
	p.expectGranted("the second reader", take("b", 2))
	p.expectOvertakes("the reader behind the writer", simredis.KindWriter, "a", take("c", 4))
	p.expectGranted("the first reader", take("a", 1))
	p.expectQueue("readers share the lock", "k", "w", "c")
}

// checkManyReadersCalled checks that of many readers some are called, and one more by each that takes the lock,
// whichever it is. The turn passes on, and nobody is called twice.
func checkManyReadersCalled(p *probe) {
	p.admit()
	p.hold("mine")
	inboxes := map[int]*inbox{}
	for _, i := range []int{0, 1, 15, 16, 21, 22, 41} {
		inboxes[i] = p.listen(fmt.Sprintf("r%02d", i))
	}
	for i := range 72 {
		host := fmt.Sprintf("r%02d", i)
		p.wait(opJoinShared("k", "token-"+host, minute), sharedEntry(host), int64(i+1), int64(i+1))
	}
	expect := func(what string, want map[int]string) {
		p.Helper()
		for i, e := range inboxes {
			if want[i] == "" {
				p.expectMessages(what, e, fmt.Sprintf("r%02d", i))
			} else {
				p.expectMessages(what, e, fmt.Sprintf("r%02d", i), want[i]+" k")
			}
		}
	}
	take := func(i int) {
		p.Helper()
		host := fmt.Sprintf("r%02d", i)
		p.expectGranted(host, p.do(p.ballot(opJoinShared("k", "token-"+host, minute), opEnter("k", sharedEntry(host), int64(i+1)))...).Array[0])
	}
	p.vote(p.ballot(opRelease("k", "mine")))
	expect("a release", map[int]string{0: "turn", 1: "turn", 15: "turn", 16: "next"})
	take(0)
	p.expectTurn("the first reader has the lock", "k", "r01")
	expect("the first reader has the lock", map[int]string{16: "turn"})
	for i := range 5 {
		take(10 + i)
	}
	p.expectTurn("others have the lock", "k", "r01")
	expect("six readers have the lock", map[int]string{21: "turn"})
	take(40)
	expect("a reader that was not called has the lock", map[int]string{41: "turn"})
	p.expectOvertakes("a reader behind more than a call looks at", simredis.KindWriter, "r01",
		p.wait(opJoinShared("k", "token-late", minute), sharedEntry("late"), 100, 66))
}

// checkManyEntriesOfHosts checks that all entries of a host may be gone: others are told when to ask, and
// have the position of their host.
func checkManyEntriesOfHosts(p *probe) {
	p.admit()
	p.hold("mine")
	readers, ticket := []string{}, int64(0)
	for _, host := range []string{"a", "b"} {
		for i := range 20 {
			ticket++
			readers = append(readers, fmt.Sprint(sharedEntry(host), i))
			want := ticket
			if host == "b" && i == 0 {
				want = 2 // its host is the second one
			}
			p.wait(opJoinShared("k", fmt.Sprint(host, i), minute), readers[ticket-1], ticket, want)
		}
	}
	c, w := p.listen("c"), p.listen("w")
	p.wait(opJoinShared("k", "c", minute), sharedEntry("c"), 50, 3)
	p.wait(opAcquire("k", "w", minute), exclusiveEntry("w"), 60, 4)
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("a release", c, "c", "next k")
	p.expectMessages("a release", w, "w", "next k")
	p.expectTurn("a release", "k", "a")
	p.expect(list(number(-2), number(0)), p.ballot(opJoinShared("k", "c", minute), opEnter("k", sharedEntry("c"), 50))...)
	p.do("DEL", "redlockd:host:a")
	p.expect(list(number(-3), number(0)), p.ballot(opJoinShared("k", "b5", minute), opEnter("k", readers[25], 26))...)
	p.expectTurn("the first host is gone", "k", "b")
}

func checkSlotCalls(p *probe) {
	p.admit()
	const slots2 = "redlockd:slots=2"
	entry := func(host string) string { return entryOf(host, slots2, longTurn) }
	a, b, c := p.listen("a"), p.listen("b"), p.listen("c")
	p.expectGranted("slot 1", p.vote(p.ballot(opJoin("k", "1 one", slots2, minute))))
	p.expectGranted("slot 2", p.vote(p.ballot(opJoin("k", "2 two", slots2, minute))))
	for i, host := range []string{"a", "b", "c"} {
		p.wait(opJoin("k", "1 "+host, slots2, minute), entry(host), int64(i+1), int64(i+1))
	}
	p.vote(p.ballot(opRelease("k", "1 one")))
	p.expectMessages("one slot is free", a, "a", "turn k")
	p.expectMessages("one slot is free", b, "b", "next k")
	p.expectMessages("one slot is free: the first two may be gone", c, "c", "next k")
	p.expectOvertakes("a client that does not wait", simredis.KindTurn, "a", p.vote(p.ballot(opJoin("k", "1 x", slots2, minute))))
	p.vote(p.ballot(opRelease("k", "2 two")))
	p.expectMessages("two slots are free", b, "b", "turn k")
	p.expectMessages("two slots are free", c, "c", "next k")
	take := func(host, slot string) redlock.Reply {
		return p.do(p.ballot(opJoin("k", slot+" "+host, slots2, minute), opEnter("k", entry(host), 9))...).Array[0]
	}
	p.expectOvertakes("the third waiter", simredis.KindTurn, "a", take("c", "1"))
	p.expectGranted("the second waiter", take("b", "1"))
	p.expectGranted("the first waiter", take("a", "2"))
	p.expectQueue("both slots are taken", "k", "c")
}

// askSeveral asks for j and k, and stands in the queue of a key. It returns the replies of the names.
func (p *probe) askSeveral(host, stands string, ticket int64) []redlock.Reply {
	p.Helper()
	got := p.do(p.ballot(opAcquireAlso("j", "token-"+host, "aa"), opAcquire("k", "token-"+host, minute), opEnter(stands, exclusiveEntry(host), ticket))...)
	if len(got.Array) != 3 {
		p.Fatalf("%s: got %s, want three replies", host, show(got))
	}
	return got.Array[:2]
}

// checkSeveralWait checks that a waiter for several names stands in one queue, and does not keep the others
// from a name for which it does not wait. In another queue it has the same place.
func checkSeveralWait(p *probe) {
	p.admit()
	m, a := p.listen("m"), p.listen("a")
	p.hold("mine")
	p.expectGranted("j", p.vote(p.ballot(opAcquire("j", "other", minute))))
	for _, got := range p.askSeveral("m", "j", 1) {
		if len(got.Array) != 2 {
			p.Errorf("both are held: got %s", show(got))
		}
	}
	p.expectQueue("it waits for j", "j", "m")
	p.expectQueue("it waits for j", "k")
	p.wait(opAcquire("k", "token-a", minute), exclusiveEntry("a"), 2, 1)
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectMessages("k is free", a, "a", "turn k")
	p.expectGranted("the other", p.takes("a"))
	p.vote(p.ballot(opRelease("j", "other")))
	p.expectMessages("j is free", m, "m", "turn j")
	got := p.askSeveral("m", "j", 1)
	if !same(got[0], number(0)) || len(got[1].Array) != 2 || got[1].Array[0].Str != "token-a" {
		p.Errorf("j is free and k is held: got %s and %s, want 0 and the holder", show(got[0]), show(got[1]))
	}
	p.wait(opAcquire("k", "token-b", minute), exclusiveEntry("b"), 3, 1)
	p.vote(p.ballot(opReenter("k", exclusiveEntry("m"), 1)))
	p.vote(p.ballot(opEndWait("j", exclusiveEntry("m"))))
	p.expectQueue("it waits for k", "j")
	p.expectQueue("it waits for k, with its ticket", "k", "m", "b")
	p.expectGranted("j is free for others", p.vote(p.ballot(opAcquire("j", "other", minute))))
	p.vote(p.ballot(opRelease("j", "other")))
	p.vote(p.ballot(opRelease("k", "token-a")))
	p.expectMessages("k is free", m, "m", "turn k")
	for _, got := range p.askSeveral("m", "k", 1) {
		p.expectGranted("several names", got)
	}
	p.expectQueue("k", "k", "b")
	p.expect(text("token-m"), "GET", "j")
	p.expect(text("token-m"), "GET", "k")
}

// checkSeveralByTicket checks that a request for several names takes a free name before the waiters in
// its queue that asked later, although it stands in another queue, and not before the others.
func checkSeveralByTicket(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("w") // with the ticket 1
	p.do("DEL", "k")
	got := p.askSeveral("m", "j", 2)
	p.expectOvertakes("it asked later", simredis.KindTurn, "w", got[1])
	if !same(got[0], number(0)) {
		p.Errorf("j is free: got %s, want 0", show(got[0]))
	}
	p.expectOvertakes("it asked first, but it is another one's turn", simredis.KindTurn, "w", p.askSeveral("m", "j", 0)[1])
	p.do("SET", "k\x00t", "0", "PX", minute)
	for _, got := range p.askSeveral("m", "j", 0) {
		p.expectGranted("it asked first", got)
	}
	p.expectQueue("j", "j")
	p.expectQueue("k", "k", "w")
}

// checkManyGone checks that a script removes a limited number of entries of hosts that are gone, and that
// they hide the others from nobody: each attempt of the last ones removes more, and they are told to ask.
func checkManyGone(p *probe) {
	p.admit()
	p.hold("mine")
	last := p.listen("last")
	for i := range 30 {
		gone := []string{"ZADD", "k\x00q"}
		for j := range 50 {
			gone = append(gone, "1", entryOf(fmt.Sprintf("gone%02d", (50*i+j)%40), "-", longTurn)+fmt.Sprint(50*i+j))
		}
		p.do(gone...)
	}
	p.wait(opAcquire("k", "token-last", minute), exclusiveEntry("last"), 2, 1501)
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expect(number(1501-512), "ZCARD", "k\x00q")
	p.expectMessages("a release", last, "last", "next k")
	p.expectMessages("the first attempt", last, "last")
	var got redlock.Reply
	for range 3 {
		if got = p.takes("last"); got.Array == nil {
			break
		}
		p.expectMessages("an attempt that removed not all of them", last, "last", "next k")
	}
	p.expectGranted("the only host that lives", got)
	p.expectQueue("the end", "k")
}

// checkQueueWrongType checks that keys of another type, which only another program can write, keep
// nobody from a free lock for longer than a turn.
func checkQueueWrongType(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a")
	for _, suffix := range []string{"q", "t"} {
		p.do("DEL", "k\x00"+suffix)
		p.expect(number(1), "LPUSH", "k\x00"+suffix, "x")
	}
	got := p.do(p.ballot(opAcquire("k", "theirs", minute), opEnter("k", exclusiveEntry("b"), 1))...)
	if len(got.Array) != 2 || !same(got.Array[1], number(0)) {
		p.Errorf("entered: got %s, want position 0", show(got))
	}
	p.expectVote(number(1), p.ballot(opEndWait("k", exclusiveEntry("b"))))
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectGranted("a free lock", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expectVote(number(1), p.ballot(opRelease("k", "theirs")))
	p.do("DEL", "k\x00q")
	p.expect(number(1), "ZADD", "k\x00q", "1", "no entry")
	p.expect(text("OK"), "SET", "k\x00t", "not a number x")
	p.expectGranted("a queue of nonsense", p.takes("a"))
}

// checkOtherEntries checks that entries of another version keep others from a free lock for no longer than a
// turn: those that are no entries are removed, and those of an unknown kind get a turn.
func checkOtherEntries(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a")
	p.do("SET", "redlockd:host:other", "1", "PX", minute)
	unknown := entryOf("other", "redlockd:future", 40)
	for i, entry := range []string{"other", "2 other - 50 token", `{"host":"other"}`, "other 50 - token", unknown} {
		p.do("ZADD", "k\x00q", fmt.Sprint(-5+i), entry)
	}
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectTurn("a release", "k", "other")
	p.expectQueue("a release", "k", "other", "a")
	p.passTurn()
	p.expectGranted("the first waiter that is known", p.takes("a"))
	p.expectQueue("it has the lock", "k", "other")
}

// checkQueues checks the field that says until when clients may wait: without it, an acquire looks
// for no waiters.
func checkQueues(p *probe) {
	p.admit()
	p.hold("mine")
	p.expect(null(), "HGET", NodeKey, "queues")
	p.enters("a")
	until, err := strconv.ParseInt(p.do("HGET", NodeKey, "queues").Str, 10, 64)
	if left := time.Duration(until*1000-p.micros()) * time.Microsecond; err != nil || left > time.Minute+2*time.Millisecond || left < 50*time.Second {
		p.Errorf("the node looks for waiters for another %v (%v), want a minute", left, err)
	}
	p.vote(p.ballot(opRelease("k", "mine")))
	p.do("HDEL", NodeKey, "queues")
	p.expectGranted("the node looks for no waiters", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
}

func checkListener(p *probe) {
	e, other := p.listen("a"), p.listen("b")
	p.expect(number(1), "PUBLISH", "redlockd:host:a", "turn\x00k\x00a - 1 x")
	p.expect(number(0), "PUBLISH", "redlockd:host:c", "turn\x00k\x00a - 1 x")
	p.expectMessages("a message", e, "a", "turn k")
	p.expectMessages("a message to another", other, "b")
	p.expect(text("OK"), "FLUSHALL")
	p.expectMessages("FLUSHALL", e, "a")
}

// expectDone checks that a listener ends at once.
func (p *probe) expectDone(e *inbox) {
	p.Helper()
	select {
	case <-e.Done():
	case <-time.After(patience):
		p.Fatalf("the listener is not done within %v", patience)
	}
}

func checkListenerClosed(p *probe) {
	e := p.listen("a")
	select {
	case <-e.Done():
		p.Error("a listener is done although it was not closed")
	default:
	}
	e.Close()
	p.expectDone(e)
	e.Close() // a second Close does no harm
	p.eventually("the end of the subscription", func() bool { return p.do("PUBLISH", "redlockd:host:a", "x").Int == 0 })
}

func checkListenerDown(p *probe) {
	e := p.listen("a")
	p.node.Down()
	p.expectDone(e)
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if listener, err := p.node.Node().Listen(ctx, "redlockd:host:a", func(string) {}); err == nil {
		listener.Close()
		p.Error("Listen to a node that is down succeeded")
	}
	p.node.Up()
	again := p.listen("a")
	p.on(p.dial()).expectMessages("the node is up again", again, "a")
}
