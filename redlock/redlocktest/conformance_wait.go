package redlocktest

import (
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// waitCases are the cases of clients that wait for a lock, and of hand-overs to waiters.
var waitCases = []conformanceCase{
	{"hand over", nil, checkHandOver},
	{"hand over as an acquire", nil, checkHandOverAcquires},
	{"a waiter sets the wake-up key", nil, checkWait},
	{"a release deletes the wake-up key", nil, checkWakeupKey},
	{"the wake-up key expires with the reservation", nil, checkWakeupKeyOfReservation},
	{"a grant reports waiters", nil, checkWanted},
	{"readers wait while a writer waits", nil, checkWriterWaits},
	{"readers wait for a writer that will come", nil, checkWriterIntent},
	{"the writer is granted the lock", nil, checkWriterGranted},
	{"the writer stops waiting", nil, checkWriterEndsWait},
	{"a lock is reserved for a waiter", nil, checkReserve},
	{"a reserved lock is not granted to other clients", nil, checkReserved},
	{"one of several names is reserved", nil, checkReservedOneOfSeveral},
	{"several names are reserved in order", nil, checkReservedInOrder},
	{"a reservation does not affect the holder", nil, checkReservationOfHeldLock},
	{"a reservation ends", nil, checkReservationEnds},
	{"a lock is reserved for a reader", nil, checkReservedForReader},
	{"a writer waits for several names", nil, checkWriterOfSeveral},
}

func opHandOver(key, old, token, ttl string) scriptOp {
	return scriptOp{"h", key, []string{old, token, ttl}, recordText("aa", 1)}
}

func opWait(key, waiter, ttl string) scriptOp {
	return scriptOp{letter: "i", key: key, args: []string{waiter, ttl}}
}

func opReserve(key, waiter, ttl string) scriptOp {
	return scriptOp{letter: "k", key: key, args: []string{waiter, ttl}}
}

func opEndWait(key, waiter string) scriptOp {
	return scriptOp{letter: "d", key: key, args: []string{waiter}}
}

// wait makes a client wait for the lock after o was refused.
func (p *probe) wait(o scriptOp, waiter string) (refused redlock.Reply) {
	p.Helper()
	got := p.do(p.ballot(o, opWait(o.key, waiter, minute))...)
	if len(got.Array) != 2 || got.Array[0].Array == nil || !same(got.Array[1], number(1)) {
		p.Fatalf("%v: got %s, want a holder and 1", o, show(got))
	}
	return got.Array[0]
}

// expectWakeupKey checks whether k has a wake-up key.
func (p *probe) expectWakeupKey(there bool, after string) {
	p.Helper()
	if got := p.do("EXISTS", "k\x00b").Int == 1; got != there {
		p.Errorf("the wake-up key after %s: exists is %v, want %v", after, got, there)
	}
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

func checkWait(p *probe) {
	p.admit()
	p.expect(list(number(1), number(1)), p.ballot(opAcquire("k", "mine", minute), opWait("k", "waiter", minute))...)
	p.expectWakeupKey(false, "a grant")
	p.expect(list(failed("LATE"), number(1)), p.late(opAcquire("k", "theirs", minute), opWait("k", "waiter", minute))...)
	p.expectWakeupKey(false, "an acquire that came too late")
	p.expectHeld("mine", p.wait(opAcquire("k", "theirs", minute), "waiter"))
	p.expectWakeupKey(true, "a refusal")
	p.expectTTL("k\x00b", 50*time.Second, time.Minute)
	p.expect(number(0), "EXISTS", "k\x00w") // the lock is not shared
	got := p.do(p.ballot(opAcquire("k", "theirs", minute), opWait("k", "waiter", "120000"))...)
	p.expectTTL("k\x00b", 50*time.Second, time.Minute) // the key exists already
	if len(got.Array) != 2 {
		p.Errorf("got %s, want two replies", show(got))
	}
}

// checkWakeupKey checks that a release or a FORCE deletes the wake-up key, and that nothing else
// does.
func checkWakeupKey(p *probe) {
	p.admit()
	setAlarm := func(letter string, o scriptOp) {
		p.Helper()
		p.expectVote(number(1), p.ballot(o))
		p.expectWakeupKey(false, letter)
	}
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", minute)))
	p.expectVote(number(0), p.ballot(opRelease("k", "theirs")))
	p.expectVote(number(0), p.ballot(opForce("k", "theirs", minute)))
	p.expectVote(number(-2), p.ballot(opHandOver("k", "mine", "next", minute)))
	p.expectWakeupKey(true, "operations that release no lock")
	setAlarm("a release", opRelease("k", "next"))

	p.expectVote(number(3), p.ballot(opAcquire("k", "mine", minute)))
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	p.do("DEL", "k\x00a")
	setAlarm("a force", opForce("k", "mine", minute))

	p.expect(number(1), "EXISTS", "k\x00a")
	p.do("DEL", "k\x00a") // as if it had expired
	p.expectVote(number(4), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(5), p.ballot(opJoinShared("k", "two", minute)))
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	p.expectVote(number(1), p.ballot(opExtend("k", "one", minute)))
	p.expectWakeupKey(true, "a reader's extension")
	released := p.group(p.ballot(opRelease("k", "one")), redlock.Command{"EXISTS", "k\x00a"})
	if !same(released[0], list(number(1))) || released[1].Int != 1 {
		p.Errorf("a reader's release while a client waits: got %s and %s, want 1 and a note that a client waited", show(released[0]), show(released[1]))
	}
	p.expectWakeupKey(false, "a reader's release")
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	setAlarm("the last reader's release", opRelease("k", "two"))

	p.expectVote(number(1), p.ballot(opEndWait("k", "waiter")))
	p.do("DEL", "k\x00a")
	p.do("SET", "k\x00a", "1") // as if a client had waited at a recent release
	p.expectVote(number(-6), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(1), p.ballot(opRelease("k", "one")))
	p.expect(number(1), "EXISTS", "k\x00a") // no client waited at this release
	p.expectVote(number(7), p.ballot(opAcquire("k", "mine", minute)))
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	p.do("DEL", "k\x00a")
	setAlarm("a release", opRelease("k", "mine"))
	p.expect(number(1), "EXISTS", "k\x00a")
	p.expectTTL("k\x00a", 0, 250*time.Millisecond)
}

// checkWakeupKeyOfReservation checks the wake-up key of a client that waits because of a
// reservation. The waiter with the reservation may never come, and no other client deletes the key.
func checkWakeupKeyOfReservation(p *probe) {
	p.admit()
	p.reserve("waiter")
	longer := func(o scriptOp) redlock.Reply {
		return p.do(p.ballot(o, opWait("k", "another", "120000"))...).Array[0]
	}
	p.expectReserved("a client that waits longer", longer(opAcquire("k", "theirs", minute)))
	p.expectTTL("k\x00b", 50*time.Second, time.Minute)
	p.do("SET", "k\x00k", "waiter")
	p.do("DEL", "k\x00b")
	longer(opAcquire("k", "theirs", minute))
	p.expectTTL("k\x00b", 110*time.Second, 120*time.Second) // as the reservation never expires
	p.expectVote(number(1), p.ballot(opEndWait("k", "waiter")))

	p.vote(p.ballot(opJoinShared("k", "one", minute)))
	p.wait(opAcquire("k", "mine", minute), "waiter")
	p.do("DEL", "k\x00b")
	longer(opJoinShared("k", "two", minute))
	p.expectTTL("k\x00b", 50*time.Second, time.Minute)
}

func checkWanted(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.wait(opAcquire("k", "theirs", minute), "waiter")
	p.expectVote(number(-2), p.ballot(opHandOver("k", "mine", "next", minute)))
	p.expect(list(number(-4), number(-4)), p.ballot(opAcquireAlso("k", "next", "aa"), opAcquire("free", "next", minute))...)
	p.expect(list(number(-6), number(-6)), p.ballot(opAcquireAlso("free", "next", "aa"), opAcquire("k", "next", minute))...)
	p.expectVote(number(7), p.ballot(opAcquire("k", "next", minute))) // an acquire of one name does not report waiters

	p.expectVote(number(8), p.ballot(opJoinShared("s", "one", minute)))
	p.wait(opJoin("s", "1 mine", slots3, minute), "")
	p.expectVote(number(-9), p.ballot(opJoinShared("s", "one", minute)))
	p.expectCounter("aa", 9)
}

// checkWriterWaits checks that readers keep a shared lock while a writer waits, and that no reader
// joins.
func checkWriterWaits(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.wait(opAcquire("k", "mine", minute), "waiter")
	p.expect(text("waiter"), "GET", "k\x00w")
	p.wait(opAcquire("k", "theirs", minute), "another")
	p.expect(text("waiter"), "GET", "k\x00w") // the intent of the first writer stays

	p.expectVote(number(1), p.ballot(opExtend("k", "one", minute)))
	p.expectVote(number(-2), p.ballot(opJoinShared("k", "one", minute)))
	refused := p.wait(opJoinShared("k", "two", minute), "")
	if a := refused.Array; len(a) != 4 || a[0].Str != simredis.KindWriter || a[2].Str != "waiter" || a[1].Int != a[3].Int || a[1].Int <= 50_000 || a[1].Int > 60_000 {
		p.Errorf("a reader while a writer waits: got %s, want [%q, ms, %q, ms]", show(refused), simredis.KindWriter, "waiter")
	}
	p.expect(text("waiter"), "GET", "k\x00w")

	longer := opWait("k", "waiter", "120000")
	p.do(p.ballot(opAcquire("k", "mine", minute), longer)...)
	p.expectTTL("k\x00w", 110*time.Second, 120*time.Second)
	p.do(p.ballot(opAcquire("k", "mine", minute), opWait("k", "waiter", "1000"))...)
	p.expectTTL("k\x00w", 110*time.Second, 120*time.Second)
}

func checkWriterIntent(p *probe) {
	intend := func(ttl string) scriptOp { return scriptOp{letter: "m", key: "k", args: []string{"waiter", ttl}} }
	p.admit()
	p.expectVote(number(1), p.ballot(intend(minute)))
	p.expect(number(0), "EXISTS", "k\x00w") // the lock is not shared
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.expectVote(number(1), p.ballot(intend(minute)))
	p.expect(number(0), "EXISTS", "k\x00w")
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(1), p.ballot(intend(minute)))
	p.expect(text("waiter"), "GET", "k\x00w")
	p.expectWakeupKey(false, "a writer that has not tried yet")
	p.expectVote(number(1), p.ballot(intend("120000")))
	p.expectTTL("k\x00w", 110*time.Second, 120*time.Second)
	if got := p.wait(opJoinShared("k", "two", minute), ""); got.Array[0].Str != simredis.KindWriter {
		p.Errorf("a reader while a writer will come: got %s, want the writer", show(got))
	}
}

func checkWriterGranted(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.wait(opAcquire("k", "mine", minute), "waiter")
	p.expectVote(number(1), p.ballot(opRelease("k", "one")))
	p.expect(text("waiter"), "GET", "k\x00w") // it stays, to keep readers out
	if got := p.wait(opJoinShared("k", "two", minute), ""); got.Array[0].Str != simredis.KindWriter {
		p.Errorf("a reader while a writer waits for a free lock: got %s, want the writer", show(got))
	}
	p.expect(list(number(2), number(1)), p.ballot(opAcquire("k", "mine", minute), opWait("k", "another", minute))...)
	p.expect(text("waiter"), "GET", "k\x00w") // it belongs to another waiter
	p.expect(list(number(3), number(1)), p.ballot(opAcquire("k", "mine", minute), opWait("k", "waiter", minute))...)
	p.expect(number(0), "EXISTS", "k\x00w")
}

func checkWriterEndsWait(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.wait(opAcquire("k", "mine", minute), "waiter")
	p.expectWaitEnds("k\x00w")
	p.expectVote(number(2), p.ballot(opJoinShared("k", "two", minute)))
}

// expectWaitEnds checks that the reservation or intent at this key ends only with its own
// waiter. The other waiters are woken then.
func (p *probe) expectWaitEnds(at string) {
	p.Helper()
	p.expectVote(number(1), p.ballot(opEndWait("k", "another")))
	p.expect(text("waiter"), "GET", at)
	p.expectWakeupKey(true, "the end of another waiter")
	p.expectVote(number(1), p.ballot(opEndWait("k", "waiter")))
	p.expect(number(0), "EXISTS", at)
	p.expectWakeupKey(false, "the end of the waiter that blocks the others")
}

// reserve reserves k for the waiter with this name while another client holds k, and then releases k.
func (p *probe) reserve(waiter string) {
	p.Helper()
	p.vote(p.ballot(opAcquire("k", "holder", minute)))
	got := p.do(p.ballot(opAcquire("k", "waits", minute), opWait("k", waiter, minute), opReserve("k", waiter, minute))...)
	if len(got.Array) != 3 || got.Array[0].Array == nil || !same(got.Array[2], number(1)) {
		p.Fatalf("got %s, want a holder and 1", show(got))
	}
	p.expectVote(number(1), p.ballot(opRelease("k", "holder")))
}

// expectReserved checks the reply to a client that is refused because of a reservation.
func (p *probe) expectReserved(what string, got redlock.Reply) {
	p.Helper()
	if a := got.Array; len(a) != 4 || a[0].Str != simredis.KindReserved || a[2].Str != "waiter" || a[1].Int != a[3].Int || a[1].Int <= 50_000 || a[1].Int > 60_000 {
		p.Errorf("%s: got %s, want [%q, ms, %q, ms]", what, show(got), simredis.KindReserved, "waiter")
	}
}

func checkReserve(p *probe) {
	p.admit()
	p.expect(list(number(1), number(1)), p.ballot(opAcquire("k", "mine", minute), opReserve("k", "waiter", minute))...)
	p.expect(number(0), "EXISTS", "k\x00k", "k\x00b") // the acquire was not refused
	p.expect(list(failed("LATE"), number(1)), p.late(opAcquire("k", "theirs", minute), opReserve("k", "waiter", minute))...)
	p.expect(number(0), "EXISTS", "k\x00k")
	p.expect(null(), "HGET", NodeKey, "keeps")

	waits := func(waiter, ttl string) {
		p.do(p.ballot(opAcquire("k", "theirs", minute), opReserve("k", waiter, ttl))...)
	}
	waits("waiter", minute)
	p.expect(text("waiter"), "GET", "k\x00k")
	p.expectTTL("k\x00k", 50*time.Second, time.Minute)
	p.expectReservedUntil(time.Minute)
	waits("another", "120000")
	p.expect(text("waiter"), "GET", "k\x00k") // the reservation of another waiter stays
	p.expectReservedUntil(time.Minute)
	waits("waiter", "120000")
	p.expectTTL("k\x00k", 110*time.Second, 120*time.Second)
	p.expectReservedUntil(2 * time.Minute)
	waits("waiter", "1000")
	p.expectTTL("k\x00k", 110*time.Second, 120*time.Second)
	p.expectReservedUntil(2 * time.Minute)
}

// expectReservedUntil checks how long the node considers reservations.
func (p *probe) expectReservedUntil(after time.Duration) {
	p.Helper()
	until, err := strconv.ParseInt(p.do("HGET", NodeKey, "keeps").Str, 10, 64)
	if left := time.Duration(until*1000-p.micros()) * time.Microsecond; err != nil || left > after || left < after-10*time.Second {
		p.Errorf("the node considers reservations for another %v (%v), want %v", left, err, after)
	}
}

func checkReserved(p *probe) {
	p.admit()
	p.reserve("waiter")
	p.expectReserved("exclusive", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expectReserved("a waiter", p.wait(opAcquire("k", "theirs", minute), "another"))
	p.expectReserved("a reader", p.vote(p.ballot(opJoinShared("k", "theirs", minute))))
	p.expectReserved("a slot", p.vote(p.ballot(opJoin("k", "1 theirs", slots3, minute))))
	p.expectReserved("a hand-over of an expired token", p.vote(p.ballot(opHandOver("k", "old", "theirs", minute))))
	p.expect(number(0), "EXISTS", "k", "k\x00w")
	p.expect(list(number(2), number(1)), p.ballot(opAcquire("k", "waits", minute), opWait("k", "waiter", minute))...)
	p.expect(number(0), "EXISTS", "k\x00k")
	p.expectVote(number(1), p.ballot(opRelease("k", "waits")))
	p.expectWakeupKey(false, "the release by the client with the reservation")
	p.expectVote(number(3), p.ballot(opAcquire("k", "theirs", minute)))

	p.do("HDEL", NodeKey, "keeps")
	got := p.do(p.ballot(opAcquire("k", "waits", minute), opWait("k", "waiter", minute), opReserve("k", "waiter", minute),
		opRelease("k", "theirs"), opAcquire("k", "another", minute))...)
	if len(got.Array) != 5 {
		p.Fatalf("got %s, want five answers", show(got))
	}
	p.expectReserved("in the call that makes the reservation", got.Array[4])
}

func checkReservedOneOfSeveral(p *probe) {
	p.admit()
	p.reserve("waiter")
	several := []scriptOp{opAcquireAlso("free", "theirs", "aa"), opAcquire("k", "theirs", minute)}
	got := p.do(p.ballot(several...)...)
	p.expectReserved("one of several", got.Array[0])
	p.expectReserved("the other", got.Array[1])
	p.expect(number(0), "EXISTS", "free", "k")
	got = p.do(p.ballot(opAcquireAlso("free", "waits", "aa"), opAcquire("k", "waits", minute), opWait("free", "waiter", minute), opWait("k", "waiter", minute))...)
	if got.Array[0].Int == 0 || !same(got.Array[0], got.Array[1]) {
		p.Errorf("the waiter with the reservation: got %s, want a grant", show(got))
	}
	p.expect(number(0), "EXISTS", "k\x00k", "free\x00k")
}

// checkReservedInOrder checks that a reservation of several names covers the free ones, up to and
// including the first held one. For a reader, a name that is held by readers counts as free.
func checkReservedInOrder(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "holder", minute)))
	p.do(p.ballot(opAcquireAlso("before", "waits", "aa"), opAcquireAlso("k", "waits", "aa"), opAcquire("z", "waits", minute),
		opReserve("before", "waiter", minute), opReserve("k", "waiter", minute), opReserve("z", "waiter", minute))...)
	p.expect(text("waiter"), "GET", "before\x00k")
	p.expect(text("waiter"), "GET", "k\x00k")
	p.expect(number(0), "EXISTS", "z\x00k")
	p.do(p.ballot(opAcquireAlso("k", "theirs", "aa"), opAcquire("y", "theirs", minute), opReserve("k", "another", minute), opReserve("y", "another", minute))...)
	p.expect(text("waiter"), "GET", "k\x00k")
	p.expect(number(0), "EXISTS", "y\x00k") // an earlier name is reserved for another waiter

	p.vote(p.ballot(opJoinShared("r", "one", minute)))
	p.do(p.ballot(opAcquireAlso("r", "two", "aa"), opJoinShared("k", "two", minute), opReserve("r", "reads", minute), opReserve("v", "reads", minute))...)
	p.expect(text("reads"), "GET", "r\x00k")
	p.expect(text("reads"), "GET", "v\x00k")

	p.vote(p.ballot(opJoinShared("w", "one", minute)))
	p.wait(opAcquire("w", "mine", minute), "writer")
	p.do(p.ballot(opJoinShared("w", "late", minute), opWait("w", "reads", minute), opReserve("w", "reads", minute))...)
	p.expect(number(0), "EXISTS", "w\x00k") // because of the writer's intent
}

// checkReservationOfHeldLock checks that a reservation does not affect the holder.
func checkReservationOfHeldLock(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.do(p.ballot(opAcquire("k", "waits", minute), opReserve("k", "waiter", minute))...)
	p.expectVote(number(2), p.ballot(opAcquire("k", "mine", minute))) // the same attempt again
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", minute)))
	p.expectVote(number(3), p.ballot(opHandOver("k", "mine", "next", minute)))
	p.expectVote(number(1), p.ballot(opRelease("k", "next")))
	p.expectVote(number(1), p.ballot(opRepair("k", "confirmed", minute, 3))) // a quorum confirmed this token, so it holds the lock
	p.expectVote(number(1), p.ballot(opRelease("k", "confirmed")))

	p.do(p.ballot(opEndWait("k", "waiter"))...)
	p.vote(p.ballot(opJoinShared("k", "one", minute)))
	p.do(p.ballot(opJoin("k", "1 waits", slots3, minute), opReserve("k", "waiter", minute))...)
	p.expectVote(number(5), p.ballot(opJoinShared("k", "one", minute)))
	p.expectReserved("another reader", p.vote(p.ballot(opJoinShared("k", "two", minute))))
}

// checkReservedForReader checks that other readers may join the reader that had the reservation, and
// are woken.
func checkReservedForReader(p *probe) {
	p.admit()
	p.reserve("waiter")
	p.wait(opJoinShared("k", "theirs", minute), "another")
	p.expectWakeupKey(true, "a refusal because of the reservation")
	p.expect(list(number(-2), number(1)), p.ballot(opJoinShared("k", "waits", minute), opWait("k", "waiter", minute))...)
	p.expect(number(0), "EXISTS", "k\x00k")
	p.expectWakeupKey(false, "the grant to the reader with the reservation")
	p.vote(p.ballot(opJoinShared("k", "theirs", minute)))
}

// checkWriterOfSeveral checks that a writer of several names sets its intent on those that are
// shared.
func checkWriterOfSeveral(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.do(p.ballot(opAcquireAlso("free", "mine", "aa"), opAcquire("k", "mine", minute), opWait("free", "waiter", minute), opWait("k", "waiter", minute))...)
	p.expect(text("waiter"), "GET", "k\x00w")
	p.expect(number(0), "EXISTS", "free\x00w")
	p.vote(p.ballot(opJoinShared("free", "one", minute)))

	p.expectVote(number(1), p.ballot(opEndWait("k", "waiter")))
	p.do(p.ballot(opJoinShared("free", "two", minute), opHandOver("k", "gone", "mine", minute), opWait("k", "waiter", minute))...)
	p.expect(text("waiter"), "GET", "k\x00w") // unlike the previous client in the call, this one does not share the lock
}

func checkReservationEnds(p *probe) {
	p.admit()
	p.reserve("waiter")
	p.wait(opAcquire("k", "theirs", minute), "another")
	p.expectWaitEnds("k\x00k")
	p.expectVote(number(2), p.ballot(opAcquire("k", "theirs", minute)))
	p.expectVote(number(1), p.ballot(opRelease("k", "theirs")))

	p.reserve("waiter")
	p.do("HDEL", NodeKey, "keeps") // so the node does not look for reservations
	p.vote(p.ballot(opAcquire("k", "theirs", minute)))
	p.expect(text("theirs"), "GET", "k")
}
