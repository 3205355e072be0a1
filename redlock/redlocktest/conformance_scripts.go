package redlocktest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

var scriptCases = []conformanceCase{
	{"scripts are gone after SCRIPT FLUSH", nil, checkScriptFlush},
	{"scripts survive FLUSHALL", nil, checkScriptsSurvive},
	{"acquire", nil, checkAcquire},
	{"acquire after expiry", nil, checkAcquireExpired},
	{"acquire too late", nil, checkAcquireLate},
	{"extend", nil, checkExtend},
	{"confirm", nil, checkConfirm},
	{"exchange", nil, checkExchange},
	{"exchange after a FORCE", nil, checkExchangeForced},
	{"release", nil, checkRelease},
	{"who", nil, checkWho},
	{"who: a turn", nil, checkWhoIsNext},
	{"fencing tokens", nil, checkFencingTokens},
	{"fencing tokens end", nil, checkFencingTokensEnd},
	{"fencing tokens far ahead", nil, checkFencingTokensFar},
	{"counters far ahead are not copied", nil, checkRewriteFar},
	{"fence", nil, checkFence},
	{"repair", nil, checkRepair},
	{"force", nil, checkForce},
	{"note of a force", nil, checkNoteForced},
	{"counters", nil, checkCounters},
	{"only the admitted incarnation votes", nil, checkEpoch},
	{"only one daemon replaces an epoch", nil, checkRewrite},
	{"a late packet replaces no epoch", nil, checkLateRewrite},
	{"counters are raised with the epoch", nil, checkRewriteCounters},
	{"the words about other nodes are written with the epoch", nil, checkWords},
	{"many operations", nil, checkMany},
	{"an error is never a vote", nil, checkErrorIsNoVote},
	{"a large foreign value", nil, checkLargeValue},
	{"operations on a wrong type", []Feature{RedisWords}, checkScriptsWrongType},
	{"scripts in a group", nil, checkScriptGroup},
}

// NodeKey is the hash in which each node stores data about itself.
const NodeKey = "redlockd:node"

const (
	minute  = "60000"
	anEpoch = "admitted:1234:word:60000:5-digest:a"
)

// scriptOp is one operation of a call of ballot.lua.
type scriptOp struct {
	letter, key string
	args        []string
	record      string // of a, n, s, h, v, f, p and q
}

func opAcquire(key, token, ttl string) scriptOp {
	return scriptOp{"a", key, []string{token, ttl}, recordText("aa", 1)}
}
func opExtend(key, token, ttl string) scriptOp {
	return scriptOp{letter: "e", key: key, args: []string{token, ttl}}
}
func opDowngrade(key, token, ttl string) scriptOp {
	return scriptOp{letter: "g", key: key, args: []string{token, ttl}}
}
func opExchange(key, old, token, ttl string) scriptOp {
	return scriptOp{letter: "u", key: key, args: []string{old, token, ttl}}
}
func opConfirm(key, token, ttl string, fence int64) scriptOp {
	return scriptOp{"v", key, []string{token, ttl}, recordText("aa", fence)}
}
func opRelease(key, token string) scriptOp {
	return scriptOp{letter: "r", key: key, args: []string{token}}
}
func opWho(key string) scriptOp { return opWhoAfter(key, "") }

// opWhoAfter shows the holders of a shared lock after a token.
func opWhoAfter(key, token string) scriptOp {
	return scriptOp{letter: "w", key: key, args: []string{token}}
}
func opFence(key, token string, fence int64) scriptOp {
	return scriptOp{"f", key, []string{token}, recordText("aa", fence)}
}
func opRepair(key, token, ttl string, fence int64) scriptOp {
	return scriptOp{"p", key, []string{token, ttl}, recordText("aa", fence)}
}

func opNoteForced(key, token, ttl string) scriptOp {
	return scriptOp{letter: "z", key: key, args: []string{token, ttl}}
}

func opForce(key, token, ttl string) scriptOp {
	return scriptOp{letter: "x", key: key, args: []string{token, ttl}}
}

func recordText(field string, fence int64) string { return fmt.Sprintf("%s%016d", field, fence) }

// scriptCall returns a call of ballot.lua.
func scriptCall(sha, epoch, notAfter string, ops ...scriptOp) redlock.Command {
	command := redlock.Command{"EVALSHA", sha, strconv.Itoa(1 + len(ops)), NodeKey}
	letters, records, args := "", "", []string{}
	for _, o := range ops {
		command = append(command, o.key)
		letters, records, args = letters+o.letter, records+o.record, append(args, o.args...)
	}
	return append(append(command, epoch, notAfter, letters, records), args...)
}

// admit makes the node vote: it loads the scripts, and sets an epoch and the counter aa.
func (p *probe) admit() {
	p.Helper()
	p.loadScripts()
	p.expect(number(2), "HSET", NodeKey, "epoch", anEpoch, "aa", "0")
}

// ballot returns a call of ballot.lua that is in time.
func (p *probe) ballot(ops ...scriptOp) redlock.Command {
	p.Helper()
	return scriptCall(luaScript(p, "ballot").SHA, anEpoch, p.never(), ops...)
}

// late returns a call of ballot.lua that is too late.
func (p *probe) late(ops ...scriptOp) redlock.Command {
	p.Helper()
	return scriptCall(luaScript(p, "ballot").SHA, anEpoch, strconv.FormatInt(p.micros()-1000, 10), ops...)
}

// never returns a not-after in the far future.
func (p *probe) never() string {
	p.Helper()
	return strconv.FormatInt(p.micros()+time.Hour.Microseconds(), 10)
}

// vote executes a call with one operation and returns its reply.
func (p *probe) vote(command redlock.Command) redlock.Reply {
	p.Helper()
	reply := p.do(command...)
	if len(reply.Array) != 1 {
		p.Fatalf("%q: got %s, want one reply in an array", command, show(reply))
	}
	return reply.Array[0]
}

func (p *probe) expectVote(want redlock.Reply, command redlock.Command) {
	p.Helper()
	if got := p.vote(command); !same(got, want) {
		p.Errorf("%q\n got %s\nwant %s", command, show(got), show(want))
	}
}

func checkScriptFlush(p *probe) {
	gone := failed("NOSCRIPT")
	p.expect(gone, p.ballot(opWho("k"))...)
	p.admit()
	p.expectVote(list(), p.ballot(opWho("k")))
	p.expect(text("OK"), "SCRIPT", "FLUSH")
	p.expect(gone, p.ballot(opWho("k"))...)
	p.loadScripts()
	p.expectVote(list(), p.ballot(opWho("k")))
}

func checkScriptsSurvive(p *probe) {
	p.admit()
	p.expect(text("OK"), "FLUSHALL")
	p.expectVote(failed("EPOCH"), p.ballot(opWho("k")))
	p.on(p.dial()).expectVote(failed("EPOCH"), p.ballot(opWho("k")))
}

func checkAcquire(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.expect(text("mine"), "GET", "k")
	p.expectTTL("k", 50*time.Second, time.Minute)

	p.expectVote(number(2), p.ballot(opAcquire("k", "mine", "120000")))
	p.expectTTL("k", 50*time.Second, time.Minute) // granted again, without a change

	p.expectHeld("mine", p.vote(p.ballot(opAcquire("k", "theirs", minute))))
	p.expect(text("mine"), "GET", "k")
	p.expect(text("2"), "HGET", NodeKey, "aa") // a refusal does not use up a fencing token

	p.expect(text("OK"), "SET", "bare", "other client")
	p.expectVote(list(text("other client"), number(-1)), p.ballot(opAcquire("bare", "mine", minute)))
}

// expectHeld checks a refusal that shows the value and its time to live of at most a minute.
func (p *probe) expectHeld(value string, got redlock.Reply) {
	p.Helper()
	if len(got.Array) != 2 || got.Array[0].Str != value || got.Array[1].Int <= 50_000 || got.Array[1].Int > 60_000 {
		p.Errorf("a lock that is held: got %s, want [%q, integer up to 60000]", show(got), value)
	}
}

func checkAcquireExpired(p *probe) {
	p.admit()
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", "40")))
	p.eventually("expiry of a lock of 40 ms", func() bool {
		return len(p.vote(p.ballot(opWho("k"))).Array) == 0
	})
	p.expectVote(number(2), p.ballot(opAcquire("k", "theirs", minute)))
	p.expectVote(number(0), p.ballot(opRelease("k", "mine")))
}

func checkAcquireLate(p *probe) {
	p.admit()
	p.expectVote(failed("LATE"), p.late(opAcquire("k", "mine", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(failed("LATE"), p.late(opAcquire("k", "mine", minute)))
	p.expect(text("0"), "HGET", NodeKey, "aa")
	p.expectVote(number(1), p.late(opExtend("k", "mine", minute))) // an extension has no not-after
}

func checkExtend(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opExtend("k", "mine", minute)))
	p.expect(number(0), "EXISTS", "k")

	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", "120000")))
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", "1000"))) // never shortens
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectVote(number(0), p.ballot(opExtend("k", "theirs", "240000")))
	p.expectTTL("k", 110*time.Second, 2*time.Minute)

	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", minute)))
	p.expect(number(-1), "PTTL", "k")
}

// checkExchange checks that EXCHANGE extends an exclusive lock as EXTEND does, whichever of the two
// tokens holds it, and that the new token holds it afterwards.
func checkExchange(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opExchange("k", "old", "new", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(1), p.ballot(opAcquire("k", "old", minute)))
	p.enters("a")

	p.expectVote(number(1), p.ballot(opExchange("k", "old", "new", "1000"))) // never shortens
	p.expect(text("new"), "GET", "k")
	p.expectTTL("k", 50*time.Second, time.Minute)
	p.expectVote(number(1), p.ballot(opExchange("k", "old", "new", "120000")))
	p.expect(text("new"), "GET", "k")
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectQueue("an exchange", "k", "a")
	p.expectCounter("aa", 1)
	p.expectVote(number(0), p.ballot(opRelease("k", "old")))

	p.expectVote(number(0), p.ballot(opExchange("k", "old", "theirs", "240000")))
	p.expectVote(failed("ERR"), p.ballot(opExchange("k", "old", "new", "soon")))
	p.expect(text("new"), "GET", "k")
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectVote(number(2), p.ballot(opJoinShared("r", "old", minute)))
	p.expectVote(number(0), p.ballot(opExchange("r", "old", "new", minute)))
	p.expectVote(failed("EPOCH"), scriptCall(luaScript(p, "ballot").SHA, "another", p.never(), opExchange("k", "old", "new", minute)))
}

// checkExchangeForced checks that a token is not exchanged after FORCE has noted it, and that an
// exchange does not bring back a lock that FORCE deleted.
func checkExchangeForced(p *probe) {
	p.admit()
	for _, forced := range []string{"old", "new"} {
		p.expectVote(number(1), p.ballot(opAcquire("k", "old", minute)))
		p.expect(text("OK"), "SET", simredis.ForcedKey(forced), "1", "PX", minute)
		p.expectVote(number(-1), p.ballot(opExchange("k", "old", "new", "120000")))
		p.expect(text("old"), "GET", "k")
		p.expectTTL("k", 50*time.Second, time.Minute)
		p.expectVote(number(1), p.ballot(opForce("k", "old", minute)))
		p.expectVote(number(-1), p.ballot(opExchange("k", "old", "new", minute)))
		p.expect(number(0), "EXISTS", "k")
		p.do("FLUSHALL")
		p.admit()
	}
	p.expectVote(number(1), p.ballot(opAcquire("k", "new", minute)))
	p.expect(text("OK"), "SET", simredis.ForcedKey("old"), "1", "PX", minute)
	p.expectVote(number(1), p.ballot(opExchange("k", "old", "new", "120000"))) // the exchange happened before the FORCE
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
}

// checkConfirm checks that CONFIRM extends an exclusive lock as EXTEND does, raises the counter,
// and reports whether another client waits.
func checkConfirm(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opConfirm("k", "mine", minute, 9)))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))

	p.expectVote(number(1), p.ballot(opConfirm("k", "mine", "120000", 9)))
	p.expectCounter("aa", 9)
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.enters("a")
	p.expectVote(number(2), p.ballot(opConfirm("k", "mine", "1000", 8))) // neither shortens the expiry nor lowers the counter
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectQueue("a confirmation", "k", "a")
	p.vote(p.ballot(opEndWait("k", exclusiveEntry("a"))))
	p.expectVote(number(0), p.ballot(opConfirm("k", "theirs", "240000", 10)))
	p.expectVote(failed("ERR"), p.ballot(opConfirm("k", "mine", "soon", 10)))
	p.expectVote(failed("FAR"), p.ballot(opConfirm("k", "mine", "240000", p.micros()+53*week)))
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectCounter("aa", 9)
	p.expectVote(number(1), p.late(opConfirm("k", "mine", minute, 11))) // CONFIRM has no not-after, as EXTEND

	p.expect(text("OK"), "SET", simredis.ForcedKey("mine"), "1", "PX", minute) // noted, and the lock is not deleted yet
	p.expectVote(number(-1), p.ballot(opConfirm("k", "mine", "240000", 12)))
	p.expectVote(number(1), p.ballot(opForce("k", "mine", minute)))
	p.expectVote(number(-1), p.ballot(opConfirm("k", "mine", minute, 12)))
	p.expectCounter("aa", 11)
	p.expectVote(number(12), p.ballot(opJoinShared("k", "one", minute))) // negative because a client waited a moment ago
	p.expectVote(number(0), p.ballot(opConfirm("k", "one", minute, 13)))
	p.expectVote(failed("EPOCH"), scriptCall(luaScript(p, "ballot").SHA, "another", p.never(), opConfirm("k", "one", minute, 13)))
}

func checkRelease(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opRelease("k", "mine")))
	p.expect(text("OK"), "SET", "k", "theirs")
	p.expectVote(number(0), p.ballot(opRelease("k", "mine")))
	p.expect(text("theirs"), "GET", "k")
	p.expectVote(number(1), p.ballot(opRelease("k", "theirs")))
	p.expect(null(), "GET", "k")
	p.expectVote(number(0), p.ballot(opRelease("k", "theirs")))
}

func checkWho(p *probe) {
	p.admit()
	p.expectVote(list(), p.ballot(opWho("k")))
	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expectHeld("mine", p.vote(p.ballot(opWho("k"))))
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(list(text("mine"), number(-1)), p.ballot(opWho("k")))
}

// checkWhoIsNext checks that WHO shows whose turn it is to take a lock that nobody holds.
func checkWhoIsNext(p *probe) {
	p.admit()
	p.hold("mine")
	p.enters("a")
	p.expectHeld("mine", p.vote(p.ballot(opWho("k"))))
	p.vote(p.ballot(opRelease("k", "mine")))
	p.expectOvertakes("released", simredis.KindTurn, "a", p.vote(p.ballot(opWho("k"))))
	p.vote(p.ballot(opEndWait("k", exclusiveEntry("a"))))
	p.expectVote(list(), p.ballot(opWho("k")))
	p.expect(number(1), "LPUSH", "k\x00t", "no turn")
	p.expectVote(list(), p.ballot(opWho("k")))
}

// checkMany checks that the operations of a call are executed in order, each with its own key and
// arguments. A refused operation does not affect the others.
func checkMany(p *probe) {
	p.admit()
	p.expect(list(), p.ballot()...)
	p.expect(text("OK"), "SET", "b", "theirs")
	p.expect(list(
		number(1), list(text("theirs"), number(-1)), number(1), number(0),
		list(), number(1), number(1), number(2), number(1), list(),
	), p.ballot(
		opAcquire("a", "mine", minute),
		opAcquire("b", "mine", minute),
		opExtend("a", "mine", "120000"),
		opExtend("c", "mine", "120000"),
		opWho("c"),
		opRelease("a", "mine"),
		opRepair("d", "mine 3", minute, 1),
		opAcquire("a", "mine 2", "120000"),
		opRelease("b", "theirs"),
		opWho("b"),
	)...)
	p.expectTTL("a", 110*time.Second, 120*time.Second)
	p.expectTTL("d", 50*time.Second, 60*time.Second)
	p.expect(number(0), "EXISTS", "b", "c")
}

// checkErrorIsNoVote checks that a SET or PEXPIRE that Redis refuses does not look like a grant.
// Here Redis refuses the ttl. It also refuses if the node is full or read-only.
func checkErrorIsNoVote(p *probe) {
	p.admit()
	p.expectVote(failed("ERR"), p.ballot(opAcquire("k", "mine", "0")))
	p.expectVote(failed("ERR"), p.ballot(opRepair("k", "mine", "0", 7)))
	p.expect(number(0), "EXISTS", "k")
	p.expect(text("0"), "HGET", NodeKey, "aa")
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	p.expectVote(failed("ERR"), p.ballot(opExtend("k", "mine", "soon")))
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
}

// checkLargeValue checks that each operation shows only the beginning of a large foreign value.
func checkLargeValue(p *probe) {
	p.admit()
	large := strings.Repeat("x", 5000)
	p.expect(number(1), "HSET", NodeKey, "ab", "0")
	part := list(text(large[:4096]), number(-1))
	p.expect(text("OK"), "SET", "k", large)
	for _, o := range []scriptOp{
		opAcquire("k", "mine", minute), opJoinShared("k", "mine", minute), opJoin("k", "1 mine", "redlockd:slots=3", minute), opWho("k"),
		opHandOver("k", "old", "mine", minute),
	} {
		p.expectVote(part, p.ballot(o))
	}
	p.expect(list(number(0), part), p.ballot(opAcquireAlso("j", "mine", "ab"), opAcquire("k", "mine", minute))...)
	p.expect(text(large), "GET", "k")
}

func checkScriptsWrongType(p *probe) {
	p.admit()
	p.expect(number(1), "LPUSH", "l", "v")
	p.expectVote(failed("WRONGTYPE"), p.ballot(opAcquire("l", "mine", minute)))
	p.expectVote(failed("WRONGTYPE"), p.ballot(opWho("l")))
	for _, o := range []scriptOp{opExtend("l", "mine", minute), opRelease("l", "mine"), opFence("l", "mine", 7), opRepair("l", "mine", minute, 7)} {
		if got := p.vote(p.ballot(o)); got.Int != 0 {
			p.Errorf("%v: got %s, want 0 or an error", o, show(got))
		}
	}
	p.expect(number(1), "EXISTS", "l")
	p.expect(number(1), "DEL", NodeKey)
	p.expect(number(1), "LPUSH", NodeKey, "v")
	p.expectVote(failed("WRONGTYPE"), p.ballot(opAcquire("k", "mine", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expect(failed("WRONGTYPE"), p.rewrite("", "new", "", "0")...)
}

// checkScriptGroup checks the operations on one lock in one group, with failures in between.
func checkScriptGroup(p *probe) {
	p.admit()
	got := p.group(
		p.ballot(opAcquire("k", "mine", minute)),
		redlock.Command{"EVALSHA", "0123456789012345678901234567890123456789", "0"},
		p.ballot(opExtend("k", "mine", minute)),
		p.late(opAcquire("k", "mine", minute)),
		p.ballot(opRelease("k", "mine")),
		p.ballot(opWho("k")),
	)
	want := []redlock.Reply{list(number(1)), failed("NOSCRIPT"), list(number(1)), list(failed("LATE")), list(number(1)), list(list())}
	for i := range want {
		if !same(got[i], want[i]) {
			p.Errorf("command %d of the group: got %s, want %s", i, show(got[i]), show(want[i]))
		}
	}
}
