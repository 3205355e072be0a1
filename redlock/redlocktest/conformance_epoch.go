package redlocktest

import (
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// checkFencingTokens checks that each grant increments the counter, or takes a larger proposal
// unless that is too far ahead of the node's TIME.
func checkFencingTokens(p *probe) {
	p.admit()
	propose := func(fence int64) redlock.Command {
		o := opAcquire("k", "mine", minute)
		o.record = recordText("aa", fence)
		return p.ballot(o)
	}
	p.expectVote(number(1), propose(0))
	p.expectVote(number(70), propose(70))
	p.expectVote(number(71), propose(70))
	p.expectVote(number(72), propose(3))
	p.expect(text("72"), "HGET", NodeKey, "aa")

	now := p.micros()
	p.expectVote(number(73), propose(now+3_600_000_000))
	p.expectVote(number(now), propose(now))
	p.expectVote(number(now+1), propose(now))
	p.expectCounter("aa", now+1)

	// Two names that share a counter, in one call.
	first, second := opAcquire("x", "mine", minute), opAcquire("y", "mine", minute)
	p.expect(list(number(now+2), number(now+3)), p.ballot(first, second)...)
	p.expectCounter("aa", now+3)

	read := opJoinShared("r", "one", minute)
	read.record = recordText("aa", now+500_000)
	p.expectVote(number(now+500_000), p.ballot(read))
	read.record = recordText("aa", now+3_600_000_000)
	p.expectVote(number(now+500_001), p.ballot(read))
}

func (p *probe) expectCounter(field string, want int64) {
	p.Helper()
	got, err := strconv.ParseInt(p.do("HGET", NodeKey, field).Str, 10, 64)
	if err != nil || got != want {
		p.Errorf("counter %s: got %d (%v), want %d", field, got, err, want)
	}
}

// checkFencingTokensEnd checks that a node does not grant a lock if the counter is close to the
// largest exact integer of a double.
func checkFencingTokensEnd(p *probe) {
	p.admit()
	const last = 1<<53 - 1<<40
	p.expect(number(0), "HSET", NodeKey, "aa", strconv.Itoa(last-1))
	p.expectVote(number(last), p.ballot(opAcquire("k", "mine", minute)))
	p.expectVote(failed("FULL"), p.ballot(opAcquire("other", "mine", minute)))
	p.expect(number(0), "EXISTS", "other")
	p.expectCounter("aa", last)
}

// week is a week in microseconds. A node refuses counters more than 52 weeks ahead of its clock.
const week = 7 * 24 * 3600 * 1_000_000

// checkFencingTokensFar checks that no client can raise a counter far ahead of the node's TIME.
// Such an operation has no effect at all. A counter that is far ahead already stays.
func checkFencingTokensFar(p *probe) {
	p.admit()
	near, far := p.micros()+51*week, p.micros()+53*week
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(failed("FAR"), p.ballot(opFence("k", "mine", far)))
	p.expectVote(failed("FAR"), p.ballot(opRepair("k", "mine", minute, far)))
	p.expectVote(failed("FAR"), p.ballot(opRepair("free", "mine", minute, far)))
	p.expectVote(failed("FAR"), p.ballot(opRepairShared("free", "mine", minute, "redlockd:shared", far)))
	p.expect(number(0), "EXISTS", "free")
	p.expectCounter("aa", 0)
	p.expectVote(number(1), p.ballot(opFence("k", "mine", near)))
	p.expectCounter("aa", near)

	// If one of several names has a counter far ahead, the other counters are not raised to it.
	p.expect(number(1), "HSET", NodeKey, "aa", "0", "ab", strconv.FormatInt(far, 10))
	other, last := scriptOp{"n", "x", []string{"two"}, recordText("ab", 1)}, opAcquire("y", "two", minute)
	p.expect(list(failed("FAR"), failed("FAR")), p.ballot(other, last)...)
	p.expectCounter("aa", 1)
	p.expectVote(number(1), p.ballot(scriptOp{"f", "k", []string{"mine"}, recordText("ab", far)}))
	p.expectCounter("ab", far+1)
}

// checkRewriteFar checks counters that are far ahead of TIME. A node does not accept them from
// other nodes, and resets its own ones.
func checkRewriteFar(p *probe) {
	p.loadScripts()
	far := p.micros() + 53*week
	p.expect(number(2), "HSET", NodeKey, "epoch", "seen", "aa", strconv.FormatInt(far, 10))
	p.expect(failed("FAR"), p.rewrite("seen", "new", recordText("ab", far), "0")...)
	p.expect(text("seen"), "HGET", NodeKey, "epoch")
	p.expectCounter("aa", far)
	near := p.micros() + 51*week
	p.expect(number(1), p.rewrite("seen", "new", recordText("aa", near), "0")...)
	p.expectCounter("aa", near)
}

// checkFence checks that the counter is raised only if the token still holds the lock, and never
// lowered.
func checkFence(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opFence("k", "mine", 7)))
	p.expect(text("OK"), "SET", "k", "theirs")
	p.expectVote(number(0), p.ballot(opFence("k", "mine", 7)))
	p.expectCounter("aa", 0)
	p.expect(text("OK"), "SET", "k", "mine")
	p.expectVote(number(1), p.ballot(opFence("k", "mine", 7)))
	p.expectCounter("aa", 7)
	p.expectVote(number(1), p.ballot(opFence("k", "mine", 5)))
	p.expectCounter("aa", 7)
	p.expect(list(number(1), number(21)), p.ballot(opFence("k", "mine", 20), opAcquire("next", "theirs", minute))...)
	p.expectCounter("aa", 21)
}

// checkRepair checks that a repair sets a missing key and raises the counter, and that it does not
// change a lock that another token holds.
func checkRepair(p *probe) {
	p.admit()
	p.expectVote(failed("LATE"), p.late(opRepair("k", "mine", minute, 7)))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(1), p.ballot(opRepair("k", "mine", minute, 7)))
	p.expectHeld("mine", p.vote(p.ballot(opWho("k"))))
	p.expectCounter("aa", 7)
	p.expectVote(number(1), p.ballot(opRepair("k", "mine", "120000", 6)))
	p.expectHeld("mine", p.vote(p.ballot(opWho("k")))) // unchanged
	p.expectCounter("aa", 7)
	p.expectVote(number(0), p.ballot(opRepair("k", "theirs", minute, 9)))
	p.expectHeld("mine", p.vote(p.ballot(opWho("k"))))
	p.expectCounter("aa", 7)
}

// checkForce checks that FORCE deletes the token that it names, and no other, and that this token
// does not come back.
func checkForce(p *probe) {
	p.admit()
	p.expect(text("OK"), "SET", "k", "theirs", "PX", minute)
	p.expectVote(number(0), p.ballot(opForce("k", "mine", minute)))
	p.expect(text("theirs"), "GET", "k")
	p.expectVote(number(1), p.ballot(opForce("k", "theirs", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(number(-1), p.ballot(opExtend("k", "theirs", minute)))
	p.expectVote(number(0), p.ballot(opRepair("k", "theirs", minute, 7)))
	p.expectVote(number(0), p.ballot(opExtend("k", "another", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expectVote(failed("ERR"), p.ballot(opForce("k", "third", "0")))
	p.expectVote(number(1), p.ballot(opRepair("k", "third", minute, 7))) // a failed FORCE leaves no note
	p.expectVote(number(1), p.ballot(opForce("k", "third", "40")))
	p.eventually("the end of the note", func() bool { return p.vote(p.ballot(opExtend("k", "third", minute))).Int == 0 })
}

// checkNoteForced checks that a token with a note of FORCE stays, but is neither confirmed nor
// handed over.
func checkNoteForced(p *probe) {
	p.admit()
	p.expectVote(number(0), p.ballot(opNoteForced("k", "mine", minute)))
	p.expect(number(0), "EXISTS", "k")
	p.expect(text("OK"), "SET", "k", "theirs", "PX", minute)
	p.expectVote(number(0), p.ballot(opNoteForced("k", "mine", minute)))
	p.expectVote(number(1), p.ballot(opNoteForced("k", "theirs", minute)))
	p.expect(text("theirs"), "GET", "k")
	p.expectVote(number(-1), p.ballot(opConfirm("k", "theirs", minute, 7)))
	p.expectVote(number(1), p.ballot(opExtend("k", "theirs", minute)))
	p.expectCounter("aa", 0)
	p.expectHeld("theirs", p.vote(p.ballot(opHandOver("k", "theirs", "next", minute))))
	p.expect(number(0), "EXISTS", "k") // the hand-over was a release
	p.expectCounter("aa", 0)
	p.expectVote(failed("ERR"), p.ballot(opNoteForced("k", "third", "0")))
	p.expectVote(number(7), p.ballot(scriptOp{"s", "r", []string{"one", "redlockd:shared", minute}, recordText("aa", 7)}))
	p.expectVote(number(1), p.ballot(opNoteForced("r", "one", minute)))
	p.expectVote(number(0), p.ballot(opNoteForced("r", "two", minute)))
}

// checkCounters checks that a node returns its whole hash, for a node that lost its own.
func checkCounters(p *probe) {
	p.admit()
	reply := p.vote(p.ballot(scriptOp{letter: "c", key: NodeKey}))
	got := map[string]string{}
	for i := 0; i+1 < len(reply.Array); i += 2 {
		got[reply.Array[i].Str] = reply.Array[i+1].Str
	}
	if len(reply.Array) != 4 || got["epoch"] != anEpoch || got["aa"] != "0" {
		p.Errorf("the counters: got %s, want the epoch and one counter", show(reply))
	}
}

// checkEpoch checks that a node with a different or missing epoch, or a missing counter, executes
// only releases.
func checkEpoch(p *probe) {
	everything := []scriptOp{
		opAcquire("new", "mine", minute), opRelease("k", "mine"), opExtend("mine", "mine", "120000"), opWho("k"),
		opFence("mine", "mine", 7), opRepair("repaired", "mine", minute, 7), {letter: "c", key: NodeKey}, opForce("mine", "mine", minute),
		opEnter("mine", exclusiveEntry("a"), 1), opReenter("k2", exclusiveEntry("a"), 1), opEndWait("mine", exclusiveEntry("b")), opRelease("k2", "mine"),
	}
	refusals := func(word string) redlock.Reply {
		no := failed("%s", word)
		return list(no, number(1), no, no, no, no, no, no, no, number(1), number(1), number(1))
	}
	p.admit()
	for spoil, word := range map[string]string{
		"HSET " + NodeKey + " epoch another":       "EPOCH",
		"HDEL " + NodeKey + " epoch":               "EPOCH",
		"DEL " + NodeKey:                           "EPOCH",
		"HDEL " + NodeKey + " aa":                  "COUNTERS",
		"HSET " + NodeKey + " aa x":                "COUNTERS",
		"HSET " + NodeKey + " aa -1":               "COUNTERS",
		"HSET " + NodeKey + " aa 9006099743113217": "COUNTERS",
	} {
		p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
		p.expect(text("OK"), "SET", "k2", "mine", "PX", minute)
		p.expect(text("OK"), "SET", "mine", "mine", "PX", minute)
		p.do("ZADD", "mine\x00q", "1", exclusiveEntry("b"))
		p.do("SET", "mine\x00t", "0")
		p.do("DEL", "k2\x00q", "k2\x00t")
		p.do(strings.Fields(spoil)...)
		p.expect(refusals(word), p.ballot(everything...)...)
		p.expect(number(0), "EXISTS", "new", "k", "k2", "repaired", "mine\x00q", "mine\x00t")
		p.expectQueue("entered again", "k2", "a")
		p.expectTTL("mine", 0, 60_000_000_000)
		p.do("HSET", NodeKey, "epoch", anEpoch, "aa", "0")
	}
	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expect(text("OK"), "SET", "k2", "mine", "PX", minute)
	p.expect(refusals("EPOCH"), scriptCall(luaScript(p, "ballot").SHA, "", p.never(), everything...)...)
	p.expect(number(1), "DEL", NodeKey) // a missing epoch does not match an empty one
	p.expect(text("OK"), "SET", "k", "mine", "PX", minute)
	p.expectVote(number(1), scriptCall(luaScript(p, "ballot").SHA, "", "0", opRelease("k", "mine")))
	p.expectVote(failed("EPOCH"), scriptCall(luaScript(p, "ballot").SHA, "", "0", opWho("k")))
}

func (p *probe) rewrite(seen, epoch, records, ahead string) redlock.Command {
	p.Helper()
	return redlock.Command{"EVALSHA", luaScript(p, "epoch").SHA, "1", NodeKey, seen, epoch, records, ahead, "", "", p.never()}
}

// checkRewrite checks that a new epoch replaces only the expected one.
func checkRewrite(p *probe) {
	p.loadScripts()
	p.expect(number(0), p.rewrite("seen", "new", "", "0")...)
	p.expect(number(0), "EXISTS", NodeKey)
	p.expect(number(1), p.rewrite("", "first", "", "0")...)
	p.expect(number(0), p.rewrite("", "second", "", "0")...)
	p.expect(text("first"), "HGET", NodeKey, "epoch")
	p.expect(number(1), p.rewrite("first", "second", "", "0")...)
	p.expect(number(0), p.rewrite("first", "third", recordText("aa", 9), "0")...)
	p.expect(text("second"), "HGET", NodeKey, "epoch")
	p.expect(null(), "HGET", NodeKey, "aa")
}

// checkLateRewrite checks that an epoch is not written past its not-after.
func checkLateRewrite(p *probe) {
	p.loadScripts()
	p.expect(number(1), p.rewrite("", "first", "", "0")...)
	late := p.rewrite("first", "second", "", "0")
	late[len(late)-1] = strconv.FormatInt(p.micros()-1000, 10)
	p.expect(number(0), late...)
	p.expect(text("first"), "HGET", NodeKey, "epoch")
}

// checkWords checks that the words about the other nodes are written with the epoch if the stored
// words are the expected ones. Otherwise they stay.
func checkWords(p *probe) {
	p.loadScripts()
	with := func(seen, epoch, words, before string) redlock.Command {
		command := p.rewrite(seen, epoch, "", "0")
		command[len(command)-3], command[len(command)-2] = words, before
		return command
	}
	p.expect(number(1), with("", "first", "", "")...)
	p.expect(null(), "HGET", NodeKey, "words")
	p.expect(number(0), with("first", "first", "b=w", "b=v")...)
	p.expect(number(1), with("first", "first", "b=w", "")...)
	p.expect(number(0), with("second", "third", "b=v", "b=w")...)
	p.expect(number(0), with("first", "second", "b=v", "")...)
	p.expect(number(1), with("first", "second", "", "")...)
	p.expect(text("b=w"), "HGET", NodeKey, "words")
	p.expect(number(1), with("second", "second", "b=v", "b=w")...)
	p.expect(text("b=v"), "HGET", NodeKey, "words")
}

// checkRewriteCounters checks that each counter becomes the largest of its value, the given
// minimum, and TIME plus the given amount.
func checkRewriteCounters(p *probe) {
	p.loadScripts()
	now := p.micros()
	p.expect(number(2), "HSET", NodeKey, "aa", strconv.FormatInt(now+7_200_000_000, 10), "ab", "3")
	records := recordText("aa", now+3_600_000_000) + recordText("ab", now+3_700_000_000) + recordText("77", 5)
	p.expect(number(1), p.rewrite("", "new", records, "1000000")...)
	p.expectCounter("aa", now+7_200_000_000)
	p.expectCounter("ab", now+3_700_000_000)
	for _, value := range []string{"x", "nan", "inf", "-5", "1e300", ""} { // a value that is not a counter counts as missing
		p.do("HSET", NodeKey, "epoch", "seen", "77", value)
		p.expect(number(1), p.rewrite("seen", "new", recordText("77", 5), "1000000")...)
	}
	got, _ := strconv.ParseInt(p.do("HGET", NodeKey, "77").Str, 10, 64)
	if got < now+1_000_000 || got > now+61_000_000 {
		p.Errorf("a lost counter: got %d, want TIME (%d) plus a second", got, now)
	}
}
