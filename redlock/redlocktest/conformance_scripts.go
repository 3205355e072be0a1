package redlocktest

import (
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

var scriptCases = []conformanceCase{
	{"scripts are gone after SCRIPT FLUSH", nil, checkScriptFlush},
	{"scripts survive FLUSHALL", nil, checkScriptsSurvive},
	{"acquire", nil, checkAcquire},
	{"acquire after expiry", nil, checkAcquireExpired},
	{"acquire too late", nil, checkAcquireLate},
	{"extend", nil, checkExtend},
	{"release", nil, checkRelease},
	{"who", nil, checkWho},
	{"many operations", nil, checkMany},
	{"an error is never a vote", nil, checkErrorIsNoVote},
	{"operations on a wrong type", []Feature{RedisWords}, checkScriptsWrongType},
	{"scripts in a group", nil, checkScriptGroup},
}

const minute = "60000"

// ballot returns the call of ballot.lua for one operation: its letter, and what
// follows that.
func (p *probe) ballot(key, letter string, args ...string) redlock.Command {
	p.Helper()
	return append(redlock.Command{"EVALSHA", luaScript(p, "ballot").SHA, "1", key, letter}, args...)
}

func (p *probe) acquire(key, token, ttl string) redlock.Command {
	p.Helper()
	return p.ballot(key, "a", token, ttl, p.never())
}

// never is a not-after that does not come.
func (p *probe) never() string {
	p.Helper()
	return strconv.FormatInt(p.micros()+time.Hour.Microseconds(), 10)
}

// vote runs one operation and returns its reply.
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
	p.expect(gone, p.ballot("k", "w")...)
	p.loadScripts()
	p.expectVote(list(), p.ballot("k", "w"))
	p.expect(text("OK"), "SCRIPT", "FLUSH")
	p.expect(gone, p.ballot("k", "w")...)
	p.loadScripts()
	p.expectVote(list(), p.ballot("k", "w"))
}

func checkScriptsSurvive(p *probe) {
	p.loadScripts()
	p.expect(text("OK"), "FLUSHALL")
	p.expectVote(list(), p.ballot("k", "w"))
	p.on(p.dial()).expectVote(list(), p.ballot("k", "w"))
}

func checkAcquire(p *probe) {
	p.loadScripts()
	p.expectVote(number(1), p.acquire("k", "mine", minute))
	p.expect(text("mine"), "GET", "k")
	p.expectTTL("k", 50*time.Second, time.Minute)

	p.expectVote(number(1), p.acquire("k", "mine", "120000"))
	p.expectTTL("k", 50*time.Second, time.Minute) // granted as it is

	p.expectHeld("mine", p.vote(p.acquire("k", "theirs", minute)))
	p.expect(text("mine"), "GET", "k")

	p.expect(text("OK"), "SET", "bare", "other client")
	p.expectVote(list(text("other client"), number(-1)), p.acquire("bare", "mine", minute))
}

// expectHeld checks a refusal that shows the value and its time to live, at
// most a minute.
func (p *probe) expectHeld(value string, got redlock.Reply) {
	p.Helper()
	if len(got.Array) != 2 || got.Array[0].Str != value || got.Array[1].Int <= 50_000 || got.Array[1].Int > 60_000 {
		p.Errorf("a lock that is held: got %s, want [%q, integer up to 60000]", show(got), value)
	}
}

func checkAcquireExpired(p *probe) {
	p.loadScripts()
	p.expectVote(number(1), p.acquire("k", "mine", "40"))
	p.eventually("expiry of a lock of 40 ms", func() bool {
		return len(p.vote(p.ballot("k", "w")).Array) == 0
	})
	p.expectVote(number(1), p.acquire("k", "theirs", minute))
	p.expectVote(number(0), p.ballot("k", "r", "mine"))
}

func checkAcquireLate(p *probe) {
	p.loadScripts()
	past := strconv.FormatInt(p.micros()-1000, 10)
	p.expectVote(failed("LATE"), p.ballot("k", "a", "mine", minute, past))
	p.expect(number(0), "EXISTS", "k")
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(failed("LATE"), p.ballot("k", "a", "mine", minute, past))
}

func checkExtend(p *probe) {
	p.loadScripts()
	p.expectVote(number(0), p.ballot("k", "e", "mine", minute))
	p.expect(number(0), "EXISTS", "k")

	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expectVote(number(1), p.ballot("k", "e", "mine", "120000"))
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectVote(number(1), p.ballot("k", "e", "mine", "1000")) // never shortens
	p.expectTTL("k", 110*time.Second, 2*time.Minute)
	p.expectVote(number(0), p.ballot("k", "e", "theirs", "240000"))
	p.expectTTL("k", 110*time.Second, 2*time.Minute)

	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(number(1), p.ballot("k", "e", "mine", minute))
	p.expect(number(-1), "PTTL", "k")
}

func checkRelease(p *probe) {
	p.loadScripts()
	p.expectVote(number(0), p.ballot("k", "r", "mine"))
	p.expect(text("OK"), "SET", "k", "theirs")
	p.expectVote(number(0), p.ballot("k", "r", "mine"))
	p.expect(text("theirs"), "GET", "k")
	p.expectVote(number(1), p.ballot("k", "r", "theirs"))
	p.expect(null(), "GET", "k")
	p.expectVote(number(0), p.ballot("k", "r", "theirs"))
}

func checkWho(p *probe) {
	p.loadScripts()
	p.expectVote(list(), p.ballot("k", "w"))
	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expectHeld("mine", p.vote(p.ballot("k", "w")))
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(list(text("mine"), number(-1)), p.ballot("k", "w"))
}

// checkMany: operations of one call are executed in order, each on its key and
// with its arguments, and one that is refused does not hurt the others.
func checkMany(p *probe) {
	p.loadScripts()
	p.expect(list(), "EVALSHA", luaScript(p, "ballot").SHA, "0")
	p.expect(text("OK"), "SET", "b", "theirs")
	never := p.never()
	p.expect(list(
		number(1), list(text("theirs"), number(-1)), number(1), number(0), failed("LATE"),
		list(), number(1), number(1), number(1), list(),
	),
		"EVALSHA", luaScript(p, "ballot").SHA, "10", "a", "b", "a", "c", "c", "c", "a", "a", "b", "b",
		"a", "mine", minute, never,
		"a", "mine", minute, never,
		"e", "mine", "120000",
		"e", "mine", "120000",
		"a", "mine", minute, "1",
		"w",
		"r", "mine",
		"a", "mine 2", "120000", never,
		"r", "theirs",
		"w")
	p.expectTTL("a", 110*time.Second, 120*time.Second)
	p.expect(number(0), "EXISTS", "b", "c")
}

// checkErrorIsNoVote: a SET or PEXPIRE that Redis refuses (here for its time; a
// full or a read-only node does it too) must not look like a grant.
func checkErrorIsNoVote(p *probe) {
	p.loadScripts()
	p.expectVote(failed("ERR"), p.acquire("k", "mine", "0"))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(1), p.acquire("k", "mine", minute))
	p.expectVote(failed("ERR"), p.ballot("k", "e", "mine", "soon"))
	p.expectVote(number(1), p.ballot("k", "r", "mine"))
}

func checkScriptsWrongType(p *probe) {
	p.loadScripts()
	p.expect(number(1), "LPUSH", "l", "v")
	p.expectVote(failed("WRONGTYPE"), p.acquire("l", "mine", minute))
	p.expectVote(failed("WRONGTYPE"), p.ballot("l", "w"))
	for _, command := range []redlock.Command{p.ballot("l", "e", "mine", minute), p.ballot("l", "r", "mine")} {
		if got := p.vote(command); got.Int != 0 {
			p.Errorf("%q: got %s, want 0 or an error", command, show(got))
		}
	}
	p.expect(number(1), "EXISTS", "l")
}

// checkScriptGroup: a whole life of a lock in one group, with failures in
// between.
func checkScriptGroup(p *probe) {
	p.loadScripts()
	got := p.group(
		p.acquire("k", "mine", minute),
		redlock.Command{"EVALSHA", "0123456789012345678901234567890123456789", "0"},
		p.ballot("k", "e", "mine", minute),
		p.ballot("k", "a", "mine", minute, "1"),
		p.ballot("k", "r", "mine"),
		p.ballot("k", "w"),
	)
	want := []redlock.Reply{list(number(1)), failed("NOSCRIPT"), list(number(1)), list(failed("LATE")), list(number(1)), list(list())}
	for i := range want {
		if !same(got[i], want[i]) {
			p.Errorf("command %d of the group: got %s, want %s", i, show(got[i]), show(want[i]))
		}
	}
}
