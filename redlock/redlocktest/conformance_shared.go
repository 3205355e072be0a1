package redlocktest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// sharedCases are the cases of shared locks, and of several locks at once.
var sharedCases = []conformanceCase{
	{"readers", nil, checkReaders},
	{"readers expire one by one", nil, checkReadersExpire},
	{"readers extend", nil, checkReadersExtend},
	{"downgrade", nil, checkDowngrade},
	{"downgrade by a token that does not hold the lock", nil, checkDowngradeNotHeld},
	{"readers and exclusive holders", nil, checkReadersAndOthers},
	{"kinds exclude each other", nil, checkKinds},
	{"semaphore", nil, checkSemaphore},
	{"holders of a semaphore that disagree about its slots", nil, checkPlacesBeyond},
	{"a free place is found", nil, checkFreePlace},
	{"places of expired holders are free", nil, checkExpiredPlaces},
	{"repair of a reader", nil, checkRepairShared},
	{"fence of a reader", nil, checkFenceShared},
	{"force of a reader", nil, checkForceShared},
	{"join too late", nil, checkJoinRefused},
	{"many readers", nil, checkManyReaders},
	{"readers whose key was deleted", nil, checkDeletedShared},
	{"readers on a wrong type", []Feature{RedisWords}, checkSharedWrongType},
	{"several names: all or none", nil, checkSeveral},
	{"several names get one fencing token", nil, checkSeveralFence},
	{"several names are shared", nil, checkSeveralShared},
	{"each operation has its own ttl", nil, checkOwnTTL},
	{"a node without a vote executes only releases", nil, checkNoVote},
}

const (
	slots3 = "redlockd:slots=3"
	slots5 = "redlockd:slots=5"
)

func opJoin(key, token, kind, ttl string) scriptOp {
	return scriptOp{"s", key, []string{token, kind, ttl}, recordText("aa", 1)}
}

func opJoinShared(key, token, ttl string) scriptOp {
	return opJoin(key, token, simredis.KindShared, ttl)
}

func opRepairShared(key, token, ttl, kind string, fence int64) scriptOp {
	return scriptOp{"q", key, []string{token, ttl, kind}, recordText("aa", fence)}
}

// opAcquireAlso returns an operation for another name of the acquire that follows.
func opAcquireAlso(key, token, field string) scriptOp {
	return scriptOp{"n", key, []string{token}, recordText(field, 1)}
}

// expectShared checks that a lock is shown as shared. last is the member that expires last, in 50 s
// to a minute. free has the free slot, if the reply shows one.
func (p *probe) expectShared(kind, last string, free []int64, ops ...scriptOp) {
	p.Helper()
	for _, o := range ops {
		got := p.vote(p.ballot(o))
		if len(got.Array) != 4+len(free) {
			p.Errorf("%v: got %s, want [%q, ms, %q, ms] and %v", o, show(got), kind, last, free)
			continue
		}
		shown, until := got.Array[0].Str == kind && got.Array[2].Str == last, got.Array[3].Int
		first := got.Array[1].Int // if a slot is taken: when the first one becomes free
		if !shown || first > until+10_000 || len(free) == 0 && first < until-1000 || len(free) > 0 && first > until || until <= 50_000 || until > 60_000 || len(free) > 0 && got.Array[4].Int != free[0] {
			p.Errorf("%v: got %s, want [%q, ms, %q, ms] and %v", o, show(got), kind, last, free)
		}
	}
}

// expectMembers checks which tokens share a lock.
func (p *probe) expectMembers(key, kind string, tokens ...string) {
	p.Helper()
	got := p.vote(p.ballot(opWho(key)))
	slices.Sort(tokens)
	good := len(got.Array) == 2+2*len(tokens) && got.Array[0].Str == kind
	for i, token := range tokens {
		good = good && got.Array[2+2*i].Str == token && got.Array[3+2*i].Int > 0
	}
	if !good {
		p.Errorf("holders of %s: got %s, want %s of %q", key, show(got), kind, tokens)
	}
}

func checkReaders(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", "120000")))
	p.expect(text(simredis.KindShared), "GET", "k")
	p.expectVote(number(2), p.ballot(opJoinShared("k", "two", minute)))
	p.expectVote(number(3), p.ballot(opJoinShared("k", "two", "1000"))) // again; this does not shorten the expiry
	p.expectMembers("k", simredis.KindShared, "two", "one")
	for _, key := range []string{"k", "k\x00m"} {
		p.expectTTL(key, 110*time.Second, 120*time.Second)
	}
	p.expectVote(number(0), p.ballot(opRelease("k", "three")))
	p.expectVote(number(1), p.ballot(opRelease("k", "one")))
	p.expectVote(number(0), p.ballot(opRelease("k", "one")))
	p.expectTTL("k", 50*time.Second, 60*time.Second) // the expiry of the remaining member
	p.expectShared(simredis.KindShared, "two", nil, opAcquire("k", "mine", minute))
	p.expectVote(number(1), p.ballot(opRelease("k", "two")))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
	p.expectVote(number(4), p.ballot(opAcquire("k", "mine", minute)))
}

func checkReadersExpire(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "long", minute)))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "short", "40")))
	p.expectVote(number(3), p.ballot(opJoinShared("alone", "short", "40")))
	p.eventually("expiry of readers of 40 ms", func() bool {
		return p.vote(p.ballot(opFence("k", "short", 2))).Int == 0 && len(p.vote(p.ballot(opWho("alone"))).Array) == 0
	})
	p.expectVote(number(0), p.ballot(opExtend("k", "short", minute)))
	p.expectMembers("k", simredis.KindShared, "long")
	p.expectVote(number(0), p.ballot(opExtend("k", "short", minute)))
	p.expectVote(number(0), p.ballot(opFence("k", "short", 9)))
	p.expect(number(0), "EXISTS", "alone", "alone\x00m")
	p.expectVote(number(4), p.ballot(opAcquire("alone", "mine", minute)))
}

func checkReadersExtend(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "two", minute)))
	p.expectVote(number(1), p.ballot(opExtend("k", "one", "120000")))
	p.expectVote(number(1), p.ballot(opExtend("k", "one", "1000"))) // never shortens
	for _, key := range []string{"k", "k\x00m"} {
		p.expectTTL(key, 110*time.Second, 120*time.Second)
	}
	p.expectVote(number(0), p.ballot(opExtend("k", "three", minute)))
	p.expectMembers("k", simredis.KindShared, "two", "one")
	p.expectVote(number(1), p.ballot(opForce("k", "two", minute)))
	p.expectVote(number(-1), p.ballot(opExtend("k", "two", minute)))
	p.expectMembers("k", simredis.KindShared, "one")
}

func checkReadersAndOthers(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.expectHeld("mine", p.vote(p.ballot(opJoinShared("k", "one", minute))))
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))

	p.expect(text("OK"), "SET", "bare", "other client")
	p.expectVote(list(text("other client"), number(-1)), p.ballot(opJoinShared("bare", "one", minute)))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(null(), "SET", "k", "other client", "NX", "PX", minute)
	p.expect(number(0), "EXISTS", "bare\x00m")
}

func checkKinds(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expectShared(simredis.KindShared, "one", nil, opJoin("k", "1 mine", slots3, minute), opAcquire("k", "mine", minute), opHandOver("k", "old", "new", minute))
	p.expectVote(number(2), p.ballot(opJoin("s", "1 mine", slots3, minute)))
	p.expectShared(slots3, "1 mine", nil, opJoin("s", "2 mine", slots5, minute), opJoinShared("s", "one", minute), opAcquire("s", "mine", minute))
	p.expectMembers("s", slots3, "1 mine")
	p.expectVote(number(1), p.ballot(opRelease("s", "1 mine")))
	p.expectVote(number(3), p.ballot(opJoin("s", "2 mine", slots5, minute)))
	p.expect(text(slots5), "GET", "s")
}

func checkSemaphore(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoin("k", "1 mine", slots3, "58000")))
	p.expectVote(number(2), p.ballot(opJoin("k", "1 mine", slots3, "58000"))) // the token has the slot already
	p.expectShared(slots3, "1 mine", []int64{2}, opJoin("k", "1 theirs", slots3, minute))
	p.expectVote(number(3), p.ballot(opJoin("k", "3 mine", slots3, "59000")))
	p.expectShared(slots3, "3 mine", []int64{2}, opJoin("k", "3 theirs", slots3, minute))
	p.expectShared(slots3, "1 mine", []int64{2}, opJoin("k", "1 theirs", slots3, minute))
	p.expectVote(number(4), p.ballot(opJoin("k", "2 theirs", slots3, minute)))
	p.expectShared(slots3, "1 mine", []int64{0}, opJoin("k", "1 theirs", slots3, minute))
	p.expectMembers("k", slots3, "1 mine", "3 mine", "2 theirs")
	p.expectVote(number(1), p.ballot(opRelease("k", "1 mine")))
	p.expectShared(slots3, "3 mine", []int64{1}, opJoin("k", "3 theirs", slots3, minute))
	p.expectVote(number(5), p.ballot(opJoin("k", "1 theirs", slots3, minute)))
}

// checkPlacesBeyond checks that a holder with a place beyond the slots of the semaphore, which another program
// wrote, takes no place from others, and that a client with another number of slots gets none.
func checkPlacesBeyond(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoin("k", "1 mine", slots3, minute)))
	p.do("ZADD", "k\x00s", "5", "5 other")
	p.do("ZADD", "k\x00m", strconv.FormatInt(p.micros()/1000+60_000, 10), "5 other")
	if got := p.vote(p.ballot(opJoin("k", "2 theirs", slots5, minute))); len(got.Array) != 4 || got.Array[0].Str != slots3 {
		p.Errorf("a client that wants one of 5 slots: got %s, want a holder of 3 slots", show(got))
	}
	p.expectVote(number(2), p.ballot(opJoin("k", "3 mine", slots3, minute)))
	p.expectShared(slots3, "1 mine", []int64{2}, opJoin("k", "1 theirs", slots3, minute))
	p.expectVote(number(3), p.ballot(opJoin("k", "2 mine", slots3, minute)))
	p.expectShared(slots3, "1 mine", []int64{0}, opJoin("k", "1 theirs", slots3, minute))
	p.expectVote(number(1), p.ballot(opRelease("k", "5 other")))
	p.expectVote(number(1), p.ballot(opRelease("k", "2 mine")))
	p.expectShared(slots3, "1 mine", []int64{2}, opJoin("k", "1 theirs", slots3, minute))
}

const slots1000 = "redlockd:slots=1000"

// joinPlaces takes places of a semaphore of 1,000, from first to last.
func (p *probe) joinPlaces(first, last int, token, ttl string) {
	p.Helper()
	for ; first <= last; first += 50 {
		var ops []scriptOp
		for place := first; place <= min(first+49, last); place++ {
			ops = append(ops, opJoin("k", fmt.Sprint(place, " ", token), slots1000, ttl))
		}
		for i, got := range p.do(p.ballot(ops...)...).Array {
			p.expectGranted(fmt.Sprint("place ", first+i), got)
		}
	}
}

// checkFreePlace checks that a refusal shows the first free place after the requested one, or else the
// first of all, however a place becomes free.
func checkFreePlace(p *probe) {
	p.admit()
	p.joinPlaces(1, 499, "mine", minute)
	p.joinPlaces(501, 999, "mine", minute)
	shows := func(requested int, free int64) {
		p.Helper()
		got := p.vote(p.ballot(opJoin("k", fmt.Sprint(requested, " theirs"), slots1000, minute)))
		if a := got.Array; len(a) != 5 || a[2].Str != fmt.Sprint(requested, " mine") || a[4].Int != free {
			p.Errorf("place %d: got %s, want its holder, and %d", requested, show(got), free)
		}
	}
	shows(1, 500)
	shows(499, 500)
	shows(501, 1000)
	p.joinPlaces(1000, 1000, "mine", minute)
	shows(501, 500)
	p.vote(p.ballot(opRepairShared("k", "500 mine", minute, slots1000, 7)))
	shows(3, 0)
	p.expectVote(number(1), p.ballot(opRelease("k", "7 mine")))
	shows(3, 7)
	shows(8, 7)
	p.expectVote(number(1), p.ballot(opForce("k", "9 mine", minute)))
	shows(8, 9)
	p.expectVote(number(1), p.ballot(opExtend("k", "8 mine", "120000")))
	shows(8, 9)
	for _, key := range []string{"k", "k\x00m", "k\x00s"} {
		p.expectTTL(key, 110*time.Second, 120*time.Second)
	}
	p.expectVote(number(1), p.ballot(opRelease("k", "8 mine")))
	for _, key := range []string{"k", "k\x00m", "k\x00s"} {
		p.expectTTL(key, 30*time.Second, 60*time.Second)
	}
}

// checkExpiredPlaces checks that the places of many holders that expired together can be taken, and none
// of the others, although one call does not remove all of them.
func checkExpiredPlaces(p *probe) {
	p.admit()
	p.joinPlaces(1, 1, "mine", minute)
	p.joinPlaces(2, 200, "short", "100")
	p.joinPlaces(201, 201, "mine", minute)
	p.eventually("expiry", func() bool { return p.vote(p.ballot(opFence("k", "200 short", 2))).Int == 0 })
	p.expectVote(number(0), p.ballot(opExtend("k", "200 short", minute)))
	p.joinPlaces(200, 200, "theirs", minute)
	p.vote(p.ballot(opRelease("k", "150 short"))) // it may be removed already
	p.joinPlaces(2, 199, "theirs", minute)
	got := p.vote(p.ballot(opJoin("k", "201 theirs", slots1000, minute)))
	if a := got.Array; len(a) != 5 || a[2].Str != "201 mine" {
		p.Errorf("a place of a holder that has not expired: got %s", show(got))
	}
	p.expect(number(201), "ZCARD", "k\x00m")
	p.expect(number(201), "ZCARD", "k\x00s")
}

func checkRepairShared(p *probe) {
	p.admit()
	p.expectVote(failed("LATE"), p.late(opRepairShared("k", "one", minute, simredis.KindShared, 7)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
	p.expectVote(number(1), p.ballot(opRepairShared("k", "one", minute, simredis.KindShared, 7)))
	p.expectVote(number(1), p.ballot(opRepairShared("k", "two", minute, simredis.KindShared, 6)))
	p.expectMembers("k", simredis.KindShared, "one", "two")
	p.expectCounter("aa", 7)
	p.expectVote(number(0), p.ballot(opRepairShared("k", "1 mine", minute, slots3, 9)))
	p.expectVote(number(0), p.ballot(opRepair("k", "mine", minute, 9)))

	p.expect(text("OK"), "SET", "held", "mine")
	p.expectVote(number(0), p.ballot(opRepairShared("held", "one", minute, simredis.KindShared, 9)))
	p.expectVote(number(1), p.ballot(opForce("k", "one", minute)))
	p.expectVote(number(0), p.ballot(opRepairShared("k", "one", minute, simredis.KindShared, 9)))
	p.expectMembers("k", simredis.KindShared, "two")
	p.expectCounter("aa", 7)
}

func checkFenceShared(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(0), p.ballot(opFence("k", "two", 7)))
	p.expectCounter("aa", 1)
	p.expectVote(number(1), p.ballot(opFence("k", "one", 7)))
	p.expectCounter("aa", 7)
}

func checkForceShared(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "two", minute)))
	p.expectVote(number(0), p.ballot(opForce("k", "three", minute)))
	p.expectVote(number(1), p.ballot(opForce("k", "one", minute)))
	p.expectMembers("k", simredis.KindShared, "two")
	p.expectVote(number(1), p.ballot(opForce("k", "two", minute)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
}

func checkJoinRefused(p *probe) {
	p.admit()
	p.expectVote(failed("LATE"), p.late(opJoinShared("k", "one", minute)))
	p.expectVote(failed("ERR"), p.ballot(opJoinShared("k", "one", "0")))
	p.expectVote(failed("ERR"), p.ballot(opRepairShared("k", "one", "0", simredis.KindShared, 7)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
	p.expectCounter("aa", 0)
	p.expect(number(0), "HSET", NodeKey, "aa", "9006099743113216")
	p.expectVote(failed("FULL"), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
}

// checkManyReaders checks that WHO shows up to a hundred readers, in the order of their tokens, and the
// others after the last one of these. DESCRIBE shows only that many share the lock.
func checkManyReaders(p *probe) {
	p.admit()
	for i := range script.Few + 1 {
		p.vote(p.ballot(opJoinShared("k", fmt.Sprintf("reader %03d", i), minute)))
		p.vote(p.ballot(opJoin("s", fmt.Sprint(script.Few+1-i, " mine"), "redlockd:slots=1000", minute)))
	}
	shows := func(o scriptOp, n int, first, last string) {
		p.Helper()
		got := p.vote(p.ballot(o))
		if a := got.Array; len(a) != 2+2*n || n > 0 && (a[2].Str != first || a[len(a)-2].Str != last || a[3].Int < 50_000) {
			p.Errorf("%s after %q: got %s, want %d holders with their ttl, from %q to %q", o.letter, o.args, show(got), n, first, last)
		}
	}
	shows(opWhoAfter("k", ""), script.Few, "reader 000", "reader 099")
	shows(opWhoAfter("k", "reader 099"), 1, "reader 100", "reader 100")
	shows(opWhoAfter("k", "reader 100"), 0, "", "")
	shows(opWhoAfter("s", ""), script.Few, "1 mine", "100 mine")
	shows(opWhoAfter("s", "9 mine"), 92, "10 mine", "101 mine")
	for _, key := range []string{"k", "s"} {
		if got := p.vote(p.ballot(scriptOp{letter: "o", key: key})); len(got.Array) != 2 || len(got.Array[0].Array) != 2 {
			p.Errorf("DESCRIBE: got %s, want only the kind of %s, and no waiters", show(got), key)
		}
	}
}

// checkDeletedShared checks that the holders of a shared lock lose it if its key is deleted.
func checkDeletedShared(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(number(1), "DEL", "k")
	p.expectVote(number(0), p.ballot(opExtend("k", "one", minute)))
	p.expectVote(number(2), p.ballot(opJoinShared("k", "two", minute)))
	p.expectMembers("k", simredis.KindShared, "two")

	p.expect(number(1), "DEL", "k\x00m") // without members, nobody holds the lock
	p.expectVote(list(), p.ballot(opWho("k")))
	p.expectVote(number(3), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(number(1), "DEL", "k\x00m")
	p.expectVote(number(4), p.ballot(opAcquire("k", "mine", minute)))
	p.expect(text("mine"), "GET", "k")

	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectVote(number(5), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(number(1), "DEL", "k\x00m")
	p.expectVote(number(6), p.ballot(opJoin("k", "1 mine", slots3, minute)))
	p.expectMembers("k", slots3, "1 mine")
}

func checkSharedWrongType(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "one", minute)))
	p.expect(text("OK"), "SET", "k\x00m", "v")
	p.expectVote(failed("WRONGTYPE"), p.ballot(opJoinShared("k", "two", minute)))
	p.expectVote(failed("WRONGTYPE"), p.ballot(opRelease("k", "one")))
	p.expectVote(number(0), p.ballot(opExtend("k", "one", minute)))
	p.expect(number(1), "LPUSH", "l", "v")
	p.expectVote(failed("WRONGTYPE"), p.ballot(opJoinShared("l", "one", minute)))
	p.expectVote(failed("WRONGTYPE"), p.ballot(opHandOver("l", "old", "new", minute)))
}

func checkSeveral(p *probe) {
	p.admit()
	p.expect(number(1), "HSET", NodeKey, "ab", "0")
	all := p.ballot(opAcquireAlso("a", "mine", "aa"), opAcquireAlso("b", "mine", "ab"), opAcquire("c", "mine", minute))
	p.expect(text("OK"), "SET", "b", "theirs")
	held := list(text("theirs"), number(-1))
	p.expect(list(number(0), held, number(0)), all...)
	p.expect(number(1), "EXISTS", "a", "b", "c")
	p.expectCounter("aa", 0)
	p.expectVote(number(1), p.ballot(opRelease("b", "theirs")))
	p.expect(list(failed("LATE"), failed("LATE")), p.late(opAcquireAlso("a", "mine", "aa"), opAcquire("c", "mine", minute))...)
	p.expect(number(0), "EXISTS", "a", "b", "c")
	p.expect(list(number(2), number(2), number(2)), all...)
	for _, key := range []string{"a", "b", "c"} {
		p.expect(text("mine"), "GET", key)
		p.expectTTL(key, 50*time.Second, 60*time.Second)
	}
	p.expect(list(number(4), number(4), number(4)), all...) // again
	p.expectVote(number(5), p.ballot(opJoinShared("d", "one", minute)))
	p.expect(number(1), "DEL", "c")
	if got := p.do(p.ballot(opAcquireAlso("c", "mine", "ab"), opAcquire("d", "mine", minute))...); len(got.Array) != 2 || !same(got.Array[0], number(0)) || len(got.Array[1].Array) != 4 {
		p.Errorf("several names, one of which is shared: got %s, want 0 and its holder", show(got))
	}
	p.expect(number(0), "EXISTS", "c")
}

// checkSeveralFence checks that several names get one fencing token. It is larger than the previous
// token of each name, and becomes the value of all their counters.
func checkSeveralFence(p *probe) {
	p.admit()
	p.expect(number(1), "HSET", NodeKey, "ab", "41")
	p.expect(list(number(42), number(42)), p.ballot(opAcquireAlso("b", "mine", "ab"), opAcquire("a", "mine", minute))...)
	p.expectCounter("aa", 42)
	p.expectCounter("ab", 42)
	p.expect(list(number(43), number(43), number(44)),
		p.ballot(opAcquireAlso("b", "mine", "ab"), opAcquire("a", "mine", minute), opAcquire("c", "mine", minute))...)
}

// checkSeveralShared checks that a client acquires all of several shared names or none, and that
// this does not affect a later operation of the call.
func checkSeveralShared(p *probe) {
	p.admit()
	several := p.ballot(opAcquireAlso("a", "one", "aa"), opJoinShared("b", "one", minute), opAcquire("c", "mine", minute))
	p.expect(text("OK"), "SET", "b", "theirs")
	held := list(text("theirs"), number(-1))
	p.expect(list(number(0), held, number(1)), several...)
	p.expect(number(0), "EXISTS", "a", "a\x00m", "b\x00m")
	p.expectVote(number(1), p.ballot(opRelease("b", "theirs")))
	p.expectVote(number(1), p.ballot(opRelease("c", "mine")))
	p.expect(list(number(3), number(3), number(4)), several...)
	p.expectMembers("a", simredis.KindShared, "one")
	p.expectMembers("b", simredis.KindShared, "one")
	p.expect(text("mine"), "GET", "c")
}

// checkOwnTTL checks that each operation of a call has its own ttl. Several names that are acquired
// together have the ttl of the last one.
func checkOwnTTL(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "old", minute)))
	p.expect(list(number(3), number(3), number(4), number(5)), p.ballot(opAcquireAlso("a", "two", "aa"),
		opAcquire("b", "two", "120000"), opJoinShared("r", "one", "220000"), opHandOver("k", "old", "new", "320000"))...)
	for key, ttl := range map[string]time.Duration{"a": 120, "b": 120, "r": 220, "r\x00m": 220, "k": 320} {
		p.expectTTL(key, (ttl-10)*time.Second, ttl*time.Second)
	}
	p.expect(text("new"), "GET", "k")
}

// checkNoVote checks that a node that may not vote executes only the releases of a call.
func checkNoVote(p *probe) {
	p.admit()
	p.expect(text("OK"), "SET", "k", "mine")
	p.expect(number(0), "HSET", NodeKey, "epoch", "another")
	ops := []scriptOp{
		opAcquireAlso("a", "new", "aa"), opAcquire("b", "new", minute), opJoinShared("a", "new", minute), opHandOver("a", "old", "new", minute), opDowngrade("k", "mine", minute),
		opRepairShared("a", "new", minute, simredis.KindShared, 7), opEnter("a", exclusiveEntry("a"), 1), opEndWait("a", exclusiveEntry("a")), opWho("a"), opRelease("k", "mine"),
	}
	for i, got := range p.do(p.ballot(ops...)...).Array {
		if want := ops[i].letter == "r" || ops[i].letter == "d"; (got.Int == 1) != want || !want && !same(got, failed("EPOCH")) {
			p.Errorf("%v at another incarnation: got %s, want EPOCH, except for releases", ops[i], show(got))
		}
	}
	p.expect(list(text(NodeKey)), "KEYS", "*")
}

// checkDowngrade checks that a downgrade changes a lock in one step: readers can join, no writer
// can acquire it, the holder stays, and no expiry is shortened.
func checkDowngrade(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opJoinShared("k", "stale", "120000")))
	p.expect(number(1), "DEL", "k") // an operator deleted the key: its reader does not come back
	p.expectVote(number(2), p.ballot(opAcquire("k", "mine", minute)))
	p.expectHeld("mine", p.vote(p.ballot(opJoinShared("k", "one", minute))))
	p.wait(opJoinShared("k", "one", minute), sharedEntry("a"), 1, 1)
	p.expectVote(number(1), p.ballot(opDowngrade("k", "mine", "1000")))
	p.expect(text(simredis.KindShared), "GET", "k")
	p.expectMembers("k", simredis.KindShared, "mine")
	for _, key := range []string{"k", "k\x00m"} {
		p.expectTTL(key, 50*time.Second, 60*time.Second) // not shortened
	}
	p.expectTurn("a downgrade", "k", "a")
	p.expectCounter("aa", 2)
	p.expectShared(simredis.KindShared, "mine", nil, opAcquire("k", "other", minute), opHandOver("k", "old", "other", minute))
	p.expectVote(number(-3), p.ballot(opJoinShared("k", "one", "120000"))) // negative because a client waits
	p.expectVote(number(1), p.ballot(opDowngrade("k", "mine", "180000")))
	p.expectMembers("k", simredis.KindShared, "one", "mine")
	p.expectTTL("k", 170*time.Second, 180*time.Second)
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", minute)))
	p.expectVote(number(0), p.ballot(opConfirm("k", "mine", minute, 7)))
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectShared(simredis.KindShared, "one", nil)
	p.expectVote(number(1), p.ballot(opRelease("k", "one")))
	p.vote(p.ballot(opEndWait("k", sharedEntry("a"))))
	p.expectVote(number(4), p.ballot(opAcquire("k", "other", minute)))
}

// checkDowngradeNotHeld checks that a downgrade does not change a lock that the token does not
// hold, and that it notices a FORCE, as an extension does.
func checkDowngradeNotHeld(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opDowngrade("k", "mine", minute)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
	p.expectVote(number(1), p.ballot(opAcquire("k", "theirs", minute)))
	p.expectVote(number(0), p.ballot(opDowngrade("k", "mine", minute)))
	p.expect(text("theirs"), "GET", "k")
	p.expectVote(number(2), p.ballot(opJoinShared("r", "one", minute)))
	p.expectVote(number(0), p.ballot(opDowngrade("r", "mine", minute)))
	p.expectMembers("r", simredis.KindShared, "one")
	p.expectVote(number(3), p.ballot(opJoin("s", "1 mine", slots3, "30000")))
	p.expectVote(number(1), p.ballot(opDowngrade("s", "1 mine", minute))) // it only extends a semaphore
	p.expectMembers("s", slots3, "1 mine")
	p.expectVote(number(1), p.ballot(opDowngrade("k", "theirs", minute)))
	p.expectVote(number(1), p.ballot(opNoteForced("k", "theirs", minute)))
	p.expectVote(number(1), p.ballot(opForce("k", "theirs", minute)))
	p.expect(number(0), "EXISTS", "k", "k\x00m")
	p.expectVote(number(-1), p.ballot(opDowngrade("k", "theirs", minute)))
}
