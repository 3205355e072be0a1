package redlocktest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// scriptCommands are the commands that ballot.lua calls, except those that it cannot start without.
var scriptCommands = strings.Fields("GET SET DEL EXISTS PTTL PEXPIRE PEXPIREAT HSET ZADD ZREM ZSCORE ZRANGE ZCOUNT ZRANK")

// deniedCase is a call to a node that denies its scripts a command.
type deniedCase struct {
	before []scriptOp // executed before the command is denied
	op     scriptOp
	others []scriptOp // earlier operations of the same call
	token  string     // holds the keys after the call, or no longer
	least  int64      // ms; 0: the token no longer holds them
}

var deniedCases = map[string]deniedCase{
	"acquire":            {op: opAcquire("k", "mine", minute), token: "mine", least: 50_000},
	"acquire of several": {op: opAcquire("k", "mine", minute), others: []scriptOp{opAcquireAlso("j", "mine", "aa")}, token: "mine", least: 50_000},
	"join":               {op: opJoinShared("k", "mine", minute), token: "mine", least: 50_000},
	"join with another":  {before: []scriptOp{opJoinShared("k", "one", "30000")}, op: opJoinShared("k", "mine", minute), token: "mine", least: 50_000},
	"join several":       {op: opJoinShared("k", "mine", minute), others: []scriptOp{opAcquireAlso("j", "mine", "aa")}, token: "mine", least: 50_000},
	"slot":               {before: []scriptOp{opJoin("k", "2 one", slots3, "30000")}, op: opJoin("k", "1 mine", slots3, minute), token: "1 mine", least: 50_000},
	"hand-over":          {before: []scriptOp{opAcquire("k", "old", "30000")}, op: opHandOver("k", "old", "mine", minute), token: "mine", least: 50_000},
	"hand-over of a token that holds nothing": {op: opHandOver("k", "old", "mine", minute), token: "mine", least: 50_000},
	"extend":              {before: []scriptOp{opAcquire("k", "mine", "30000")}, op: opExtend("k", "mine", minute), token: "mine", least: 50_000},
	"confirm":             {before: []scriptOp{opAcquire("k", "mine", "30000")}, op: opConfirm("k", "mine", minute, 7), token: "mine", least: 50_000},
	"exchange":            {before: []scriptOp{opAcquire("k", "old", "30000")}, op: opExchange("k", "old", "mine", minute), token: "mine", least: 50_000},
	"downgrade":           {before: []scriptOp{opAcquire("k", "mine", "30000")}, op: opDowngrade("k", "mine", minute), token: "mine", least: 50_000},
	"downgrade a reader":  {before: []scriptOp{opJoinShared("k", "mine", "30000")}, op: opDowngrade("k", "mine", minute), token: "mine", least: 50_000},
	"extend a reader":     {before: []scriptOp{opJoinShared("k", "mine", "30000")}, op: opExtend("k", "mine", minute), token: "mine", least: 50_000},
	"fence":               {before: []scriptOp{opAcquire("k", "mine", minute)}, op: opFence("k", "mine", 7), token: "mine", least: 50_000},
	"repair":              {op: opRepair("k", "mine", minute, 7), token: "mine", least: 50_000},
	"repair a reader":     {before: []scriptOp{opJoinShared("k", "one", "30000")}, op: opRepairShared("k", "mine", minute, simredis.KindShared, 7), token: "mine", least: 50_000},
	"release":             {before: []scriptOp{opAcquire("k", "mine", minute)}, op: opRelease("k", "mine"), token: "mine"},
	"release of a reader": {before: []scriptOp{opJoinShared("k", "mine", minute)}, op: opRelease("k", "mine"), token: "mine"},
	"note of a FORCE":     {before: []scriptOp{opAcquire("k", "mine", minute)}, op: opNoteForced("k", "mine", minute), token: "mine", least: 1},
	"force":               {before: []scriptOp{opAcquire("k", "mine", minute)}, op: opForce("k", "mine", minute), token: "mine"},
}

// TestDeniedCommandIsNoVote: a node that denies its scripts a command, for example by an ACL, never
// votes for something that it has not done: not for a key, its expiry, or the counter. It also
// never replies that a token does not hold a key that it holds, because a lease would be lost for
// that.
func TestDeniedCommandIsNoVote(t *testing.T) {
	server := StartRedis(t, 1).Servers[0]
	p := newProbe(t, serverSubject{t, serverTarget{server, server.Node()}})
	p.loadScripts()
	for _, command := range scriptCommands {
		for what, c := range deniedCases {
			p.do("FLUSHALL")
			p.do("HSET", NodeKey, "epoch", anEpoch, "aa", "0")
			for _, o := range c.before {
				p.expectVote(number(1), p.ballot(o))
			}
			call := p.ballot(append(c.others, c.op)...)
			p.expect(text("OK"), "ACL", "SETUSER", "default", "-"+command)
			replies := p.do(call...).Array
			p.expect(text("OK"), "ACL", "SETUSER", "default", "+"+command)
			if len(replies) == 0 {
				continue // the script failed
			}
			vote := replies[len(replies)-1]
			if len(vote.Array) == 1 { // a hand-over of a token that holds nothing
				vote = vote.Array[0]
			}
			switch {
			case vote.Err != nil:
			case vote.Int == 0 && strings.Contains("eguvrx", c.op.letter):
				p.Errorf("%s without %s: got 0, which means that the token does not hold the key, but it does", what, command)
			case vote.Int > 0:
				p.checkDone(what+" without "+command, c, max(vote.Int, c.op.fence()))
			}
		}
	}
}

// fence returns what an operation raises the counter to, or 0.
func (o *scriptOp) fence() int64 {
	if !strings.Contains("vfpq", o.letter) {
		return 0
	}
	return 7
}

// checkDone checks that the node did what it answered.
func (p *probe) checkDone(what string, c deniedCase, counter int64) {
	p.Helper()
	got, _ := strconv.ParseInt(p.do("HGET", NodeKey, "aa").Str, 10, 64)
	if strings.Contains("ashvfpq", c.op.letter) && got != counter {
		p.Errorf("%s: the counter is %d, want %d", what, got, counter)
	}
	for _, o := range append(c.others, c.op) {
		for _, key := range []string{o.key, o.key + simredis.MembersOf} { // before WHO, which corrects the expiry
			if ttl := p.do("PTTL", key).Int; ttl != -2 && ttl < c.least {
				p.Errorf("%s: %q expires in %d ms, want at least %d", what, key, ttl, c.least)
			}
		}
		holders := p.vote(p.ballot(opWho(o.key))).Array
		var left int64
		for i := 0; i+1 < len(holders); i += 2 {
			if holders[i].Str == c.token {
				left = holders[i+1].Int
			}
		}
		if left < c.least || c.least == 0 && left != 0 {
			p.Errorf("%s: %s holds %s for %d ms, want at least %d", what, c.token, o.key, left, c.least)
		}
	}
}
