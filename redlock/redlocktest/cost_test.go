package redlocktest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// What a call may cost more than its operations, in commands that the script gives the node: costOfCall, and
// if entries of hosts that are gone are removed, costOfGone. ALGORITHM.md says the same.
const (
	costOfCall = 9
	costOfGone = 532
)

// costs reads the table of ALGORITHM.md: how many commands each operation may cost.
func costs(t *testing.T) map[string]int {
	page, err := os.ReadFile("../../packaging/docs/design/ALGORITHM.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z_`, ]+) \\| (\\d+) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			all[strings.Trim(name, "`")], _ = strconv.Atoi(row[2])
		}
	}
	return all
}

// costStates are states at the limits. Each makes the lock k on a node, for a client whose token is mine.
var costStates = map[string]func(p *probe){
	"free":               func(*probe) {},
	"held":               func(p *probe) { p.do("SET", "k", "theirs", "PX", minute) },
	"held by the client": func(p *probe) { p.do("SET", "k", "mine", "PX", minute) },
	"1000 readers":       func(p *probe) { p.share(simredis.KindShared, 1000, minute) },
	"1000 slots":         func(p *probe) { p.share(slots1000, 1000, minute) },
	"999 slots":          func(p *probe) { p.share(slots1000, 999, minute) },
	"1000 expired readers, and one": func(p *probe) {
		p.share(simredis.KindShared, 1000, "-1000")
		p.share(simredis.KindShared, 1, minute)
	},
	"999 expired slots, and one": func(p *probe) { p.share(slots1000, 999, "-1000"); p.share(slots1000, 1, minute) },
}

// costQueues are wait queues at the limits, also with many hosts: hosts that live are alive%d.
var costQueues = map[string]func(p *probe){
	"no waiters":                 func(*probe) {},
	"10000 waiters":              func(p *probe) { p.queue(10_000, "alive", "-") },
	"10000 readers":              func(p *probe) { p.queue(10_000, "alive", simredis.KindShared) },
	"10000 that want slots":      func(p *probe) { p.queue(10_000, "alive", slots1000) },
	"1000 hosts":                 func(p *probe) { p.queue(1000, "alive%d", "-") },
	"1000 hosts with readers":    func(p *probe) { p.queue(1000, "alive%d", simredis.KindShared) },
	"1000 hosts that want slots": func(p *probe) { p.queue(1000, "alive%d", slots1000) },
	"64 hosts with 10 readers each": func(p *probe) {
		for i := range 64 {
			p.queueFrom(10*i, 10, fmt.Sprint("alive", i), simredis.KindShared)
		}
	},
	"10000 of a host that died": func(p *probe) { p.queue(10_000, "gone", "-") },
	"10000 of hosts that died":  func(p *probe) { p.queue(10_000, "gone%d", "-") },
	"64 dead hosts, then 64 live": func(p *probe) {
		p.queue(64, "gone%d", "-")
		p.queueFrom(64, 64, "alive%d", simredis.KindShared)
	},
	"64 live hosts, then 64 dead": func(p *probe) {
		p.queue(64, "alive%d", simredis.KindShared)
		p.queueFrom(64, 64, "gone%d", simredis.KindShared)
	},
	"64 live and 64 dead hosts in turn": func(p *probe) {
		for i := range 64 {
			p.queueFrom(2*i, 1, "alive%d", simredis.KindShared)
			p.queueFrom(2*i+1, 1, "gone%d", simredis.KindShared)
		}
	},
	"a thousand dead, then live": func(p *probe) { p.queue(1000, "gone%d", "-"); p.queueFrom(1000, 100, "alive%d", simredis.KindShared) },
	"63 live, then a thousand dead": func(p *probe) {
		p.queue(63, "alive%d", simredis.KindShared)
		p.queueFrom(63, 1000, "gone%d", simredis.KindShared)
	},
	"63 live, then a thousand of a dead host": func(p *probe) {
		p.queue(63, "alive", simredis.KindShared)
		p.queueFrom(63, 1000, "gone", simredis.KindShared)
	},
	"10000 passed over, the first in its turn": func(p *probe) {
		p.queueFrom(int(p.micros()), 10_000, "alive%d", simredis.KindShared) // passOver puts an entry behind TIME
		first := p.do("ZRANGE", "k\x00q", "0", "0").Array[0].Str
		p.do("SET", "k\x00t", "1 "+first, "PX", minute)
	},
}

// share makes clients share k.
func (p *probe) share(kind string, n int, ttl string) {
	ms, _ := strconv.ParseInt(ttl, 10, 64)
	until := strconv.FormatInt(p.micros()/1000+ms, 10)
	members, places := []string{"ZADD", "k\x00m"}, []string{"ZADD", "k\x00s"}
	for i := range n {
		place, token := "0", fmt.Sprintf("mine %d %s", i, ttl)
		if kind != simredis.KindShared {
			place, token = strconv.Itoa(i+1), fmt.Sprintf("%d %s", i+1, ttl)
		}
		members, places = append(members, until, token), append(places, place, token)
	}
	p.do(members...)
	p.do(places...)
	p.do("SET", "k", kind, "PX", minute)
}

// queue makes requests of hosts wait for k. Hosts whose name begins with alive live.
func (p *probe) queue(n int, host, kind string) { p.queueFrom(0, n, host, kind) }

// queueFrom makes requests wait with tickets from the given one on.
func (p *probe) queueFrom(ticket, n int, host, kind string) {
	entries := []string{"ZADD", "k\x00q"}
	for i := ticket; i < ticket+n; i++ {
		id := host
		if strings.Contains(host, "%") {
			id = fmt.Sprintf(host, i)
		}
		entries = append(entries, strconv.Itoa(i), fmt.Sprint(entryOf(id, kind, longTurn), " ", i))
		if strings.HasPrefix(id, "alive") {
			p.do("SET", "redlockd:host:"+id, "1")
		}
	}
	p.do(entries...)
	p.do("SET", "k\x00t", "0", "PX", minute)
	p.do("HSET", NodeKey, "queues", strconv.FormatInt(p.micros()/1000+60_000, 10))
}

// costCalls returns calls with each operation. Most have one: their cost is the bound of one operation.
func costCalls(p *probe) map[string][]scriptOp {
	mine := entryOf("me", "-", longTurn)
	calls := map[string][]scriptOp{
		"acquire": {opAcquire("k", "mine", minute)}, "acquire as a waiter": {opAcquire("k", "mine", minute), opEnter("k", mine, 20_000)},
		"acquire as the first waiter": {opAcquire("k", "mine", minute), opEnter("k", mine, 0)},
		"share":                       {opJoinShared("k", "mine", minute), opEnter("k", entryOf("me", simredis.KindShared, longTurn), 20_000)},
		"share as the first waiter":   {opJoinShared("k", "mine", minute), opEnter("k", entryOf("me", simredis.KindShared, longTurn), 0)},
		"slot":                        {opJoin("k", "500 mine", slots1000, minute), opEnter("k", entryOf("me", slots1000, longTurn), 0)},
		"the last slot":               {opJoin("k", "1000 mine", slots1000, minute)},
		"slot of another kind":        {opJoin("k", "1 mine", slots3, minute)},
		"hand over":                   {opHandOver("k", "mine", "new", minute)},
		"extend":                      {opExtend("k", "mine", minute)}, "extend a reader": {opExtend("k", "mine 7 "+minute, minute)}, "extend a slot": {opExtend("k", "7 "+minute, minute)},
		"downgrade": {opDowngrade("k", "mine", minute)}, "exchange": {opExchange("k", "mine", "new", minute)}, "confirm": {opConfirm("k", "mine", minute, 9)},
		"release": {opRelease("k", "mine")}, "release a reader": {opRelease("k", "mine 7 "+minute)}, "release a slot": {opRelease("k", "7 "+minute)},
		"who": {opWho("k")}, "who after": {opWhoAfter("k", "mine 7")}, "raise": {opFence("k", "mine", 9)},
		"repair": {opRepair("k", "mine", minute, 9)}, "repair a reader": {opRepairShared("k", "mine", minute, simredis.KindShared, 9)},
		"repair a slot": {opRepairShared("k", "500 mine", minute, slots1000, 9)}, "note": {opNoteForced("k", "mine", minute)},
		"force": {opForce("k", "mine", minute)}, "force a slot": {opForce("k", "7 "+minute, minute)},
		"reenter": {opReenter("k", mine, 7)}, "end of a wait": {opEndWait("k", fmt.Sprint(entryOf("alive", "-", longTurn), " 0"))},
		"counters": {{letter: "c", key: NodeKey}}, "scan": {{letter: "y", key: NodeKey, args: []string{"0", "*", "256"}}}, "describe": {{letter: "o", key: "k"}},
	}
	var several, shared []scriptOp
	for i := range 99 {
		several = append(several, opAcquireAlso(fmt.Sprint("k", i), "mine", "aa"))
	}
	shared = append(slices.Clone(several), opJoinShared("k", "mine", minute), opEnter("k", entryOf("me", simredis.KindShared, longTurn), 0))
	calls["several"] = append(several, opAcquire("k", "mine", minute), opEnter("k", mine, 20_000))
	calls["several shared"] = shared
	for range 10 { // as if each of several names had these waiters
		calls["several, each waited for"] = append(calls["several, each waited for"], opAcquireAlso("k", "mine", "aa"))
	}
	for what, last := range map[string][]scriptOp{
		"":        {opAcquire("k", "mine", minute), opEnter("k", mine, 0)},
		" later":  {opAcquire("k", "mine", minute), opEnter("k", mine, 20_000)},
		" shared": {opJoinShared("k", "mine", minute), opEnter("k", entryOf("me", simredis.KindShared, longTurn), 0)},
	} {
		calls["several, each waited for"+what+"."] = append(slices.Clone(calls["several, each waited for"]), last...)
	}
	delete(calls, "several, each waited for")
	for _, kind := range []string{simredis.KindShared, slots1000} {
		calls["end of a wait for "+kind] = []scriptOp{opEndWait("k", fmt.Sprint(entryOf("alive0", kind, longTurn), " 0"))}
	}
	for i := range 64 {
		calls["ends of waits"] = append(calls["ends of waits"], opEndWait("k", fmt.Sprint(entryOf(fmt.Sprint("alive", i), simredis.KindShared, longTurn), " ", i)))
	}
	return calls
}

// Each operation costs a node no more commands than its row allows, whatever others hold or wait for. Guards
// CUT and freeAfter in share.lua, and head in queue.lua.
func TestCostOfOperations(t *testing.T) {
	costs, names := costs(t), map[string]string{} // of the operations, by letter
	for _, row := range regexp.MustCompile(`(?m)^--   ([a-z]) ([A-Z_]+) `).FindAllStringSubmatch(script.Ballot.Source, -1) {
		names[row[1]] = row[2]
		if costs[row[2]] == 0 {
			t.Errorf("%s has no bound", row[2])
		}
	}
	tried, most := map[string]bool{}, map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		for state, hold := range costStates {
			for queue, wait := range costQueues {
				if strings.Contains(state, "expired") && queue != "no waiters" {
					continue
				}
				sim := NewSim("a")
				p := newProbe(t, sim)
				p.admit()
				hold(p)
				wait(p)
				keys := sim.state.Snapshot()
				for what, ops := range costCalls(p) {
					sim.state.Load(keys)
					bound := costOfCall + costOfGone
					for _, o := range ops {
						tried[names[o.letter]] = true
						bound += costs[names[o.letter]]
					}
					before := sim.state.ScriptCommands
					p.do(p.ballot(ops...)...)
					n := sim.state.ScriptCommands - before
					if n > bound {
						t.Errorf("%s, %s, %s: %d commands, want at most %d", state, queue, what, n, bound)
					}
					if !strings.Contains(queue, "dead") && !strings.Contains(queue, "died") {
						if n > bound-costOfGone {
							t.Errorf("%s, %s, %s: %d commands although all hosts live, want at most %d", state, queue, what, n, bound-costOfGone)
						}
						most[what] = max(most[what], n)
					}
				}
				sim.Close()
			}
		}
	})
	for letter, name := range names {
		if !tried[name] {
			t.Errorf("%s (%s) is in no call", name, letter)
		}
	}
	t.Logf("most commands: %v", most)
}
