package redlocktest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// TestSimAnswersLikeRedis: the simulated node and Redis get the same random commands, in groups,
// and must give the same replies. It fails if a command, or Lua, differs.
func TestSimAnswersLikeRedis(t *testing.T) {
	server := StartRedis(t, 1).Servers[0]
	conn, err := respNode("a", server.Addr()).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sim := NewSim("a")
	defer sim.Close()
	for seed := range uint64(60) {
		g := generator{rand.New(rand.NewPCG(seed, 0)), luaScript(t, "ballot"), luaScript(t, "epoch")}
		for range 40 {
			compareGroup(t, conn, dialSim(t, sim), g.group())
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func compareGroup(t *testing.T, real, simulated redlock.Conn, group []redlock.Command) {
	t.Helper()
	defer simulated.Close()
	wants, gots := make([]redlock.Reply, len(group)), make([]redlock.Reply, len(group))
	if err := real.Do(t.Context(), group, wants); err != nil {
		t.Fatalf("Redis: %v", err)
	}
	if err := simulated.Do(t.Context(), group, gots); err != nil {
		t.Fatalf("Sim: %v", err)
	}
	for i, want := range wants {
		if group[i][0] == "HGETALL" { // Redis does not order the fields
			want.Array = sortedPairs(want.Array)
		}
		if got := gots[i]; !alike(got, want) {
			t.Errorf("%q\n  Sim %s\nRedis %s", shorten(group[i]), show(got), show(want))
		}
	}
}

// sortedPairs sorts fields, each followed by its value.
func sortedPairs(items []redlock.Reply) []redlock.Reply {
	pairs := slices.Collect(slices.Chunk(items, 2))
	slices.SortFunc(pairs, func(a, b []redlock.Reply) int { return strings.Compare(a[0].Str, b[0].Str) })
	return append([]redlock.Reply{}, slices.Concat(pairs...)...)
}

// alike compares replies. It allows times to live to differ a little, because time passes, and
// ignores the position in a script that Redis adds to errors.
func alike(got, want redlock.Reply) bool {
	if got.Err != nil && want.Err != nil {
		text, _, _ := strings.Cut(want.Err.Error(), " script: ")
		return got.Err.Error() == text
	}
	if got.Err != nil || want.Err != nil || len(got.Array) != len(want.Array) || (got.Array == nil) != (want.Array == nil) {
		return false
	}
	for i := range got.Array {
		if !alike(got.Array[i], want.Array[i]) {
			return false
		}
	}
	const slack = 20_000 // ms; times to live are multiples of 100 s here
	near := got.Int == want.Int || want.Int > slack && max(got.Int, want.Int)-min(got.Int, want.Int) < slack
	return near && got.Str == want.Str && got.Nil == want.Nil
}

// generator makes random commands for a few keys and values, so that they affect each other.
type generator struct {
	*rand.Rand
	ballot, node script.Script
}

func (g generator) group() []redlock.Command {
	group := make([]redlock.Command, 1+g.IntN(8))
	for i := range group {
		group[i] = g.command()
	}
	return group
}

func (g generator) command() redlock.Command {
	if g.IntN(10) < 6 {
		return g.scriptCall()
	}
	key := g.pick("a", "b", "c")
	switch g.IntN(6) {
	case 0:
		return g.hashCommand(g.pick(key, "h", "h"))
	case 1, 2:
		return g.besideCommand(key)
	}
	return redlock.Command(strings.Fields(g.pick(
		"GET "+key, "PTTL "+key, "EXISTS "+key+" a", "DEL "+key, "DEL "+key, "LPUSH "+key+" v",
		"SET "+key+" "+g.value(), "SET "+key+" "+g.value()+" NX", "SET "+key+" "+g.value()+" NX PX "+g.ttl("mine"),
		"set "+key+" "+g.value()+" px "+g.ttl("mine")+" nx", "SET "+key+" v PX -1", "SET "+key+" v PX x", "SET "+key+" v NOSUCH",
		"SET "+key, "GET", "PING", "PING hello", "NOSUCH a b", "CLIENT", "CLIENT NOSUCH", "CLIENT ID 7", "CLIENT KILL x",
		"CLIENT KILL ID x", "CLIENT KILL ID 99999", "CLIENT KILL NOSUCH 3", "CLIENT SETNAME näme", "TIME x",
		"SCRIPT FLUSH", "SCRIPT FLUSH x", "SCRIPT LOAD", "SCRIPT NOSUCH", "EVALSHA x", "EVALSHA x 0", "EVALSHA x x",
		"EVALSHA x 2 a", "EVALSHA x -1", "FLUSHALL x", "FLUSHALL SYNC", "KEYS nosuch*", "KEYS ?x", "INFO nosuch",
		"CONFIG", "CONFIG NOSUCH", "CONFIG GET", "CONFIG GET appendfsync", "CONFIG GET no-appendfsync-on-rewrite", "CONFIG GET nosuch AppendFsync", "CONFIG GET nosuch",
		"CONFIG RESETSTAT", "CONFIG RESETSTAT x", "MGET a b c h", "MGET",
	)))
}

// besideCommand reads or damages one of the other keys of a lock.
func (g generator) besideCommand(key string) redlock.Command {
	beside := key + g.pick("\x00m", "\x00s", "\x00q", "\x00t")
	switch g.IntN(12) {
	case 0:
		return redlock.Command{"DEL", beside}
	case 1:
		return redlock.Command{"SET", beside, g.value(), "PX", "400000"}
	case 2:
		return redlock.Command{"LPUSH", beside, "v"}
	}
	if strings.HasSuffix(beside, "t") { // the end of a turn is an instant of the node's clock
		return redlock.Command{g.pick("EXISTS", "PTTL"), beside}
	}
	return redlock.Command{g.pick("EXISTS", "GET", "PTTL"), beside}
}

func (g generator) hashCommand(key string) redlock.Command {
	field := g.pick("f", "g", "h")
	return redlock.Command(strings.Fields(g.pick(
		"HSET "+key+" "+field+" "+g.value(), "HSET "+key+" f "+g.value()+" "+field+" 7", "HSET "+key+" f v g",
		"HGET "+key+" "+field, "HMGET "+key+" h "+field+" nosuch", "HDEL "+key+" "+field, "HDEL "+key+" f f g",
		"HGETALL "+key, "HGETALL "+key, "EXISTS "+key, "PTTL "+key, "HGET "+key, "HMGET "+key, "HDEL "+key, "HGETALL",
	)))
}

// scriptCall mostly returns a call of ballot.lua. Its numbers are far from the time, because the
// nodes' clocks differ.
func (g generator) scriptCall() redlock.Command {
	switch g.IntN(8) {
	case 0:
		return redlock.Command{"SCRIPT", "LOAD", g.ballot.Source}
	case 1:
		return redlock.Command{"SCRIPT", "LOAD", g.node.Source}
	case 2:
		return redlock.Command{"EVALSHA", g.node.SHA, "1", NodeKey, g.epoch(), g.epoch(), "", "0", g.epoch(), g.epoch(), strconv.FormatInt(int64(g.IntN(2))<<53, 10)}
	case 3:
		return redlock.Command{"HSET", NodeKey, g.pick("epoch", "aa", "ab", "queues"), g.pick("one", "7", "9006099743113216")}
	}
	var ops []scriptOp
	for range g.IntN(9) {
		ops = append(ops, g.operations()...)
	}
	return scriptCall(g.ballot.SHA, g.epoch(), g.pick("9007199254740991", "9007199254740991", "1"), ops...)
}

func (g generator) epoch() string { return g.pick("one", "one", "two", "") }

// operations returns one operation, or several that belong together.
func (g generator) operations() []scriptOp {
	switch g.IntN(6) {
	case 0: // several names
		token := g.value()
		ops := []scriptOp{}
		for range g.IntN(3) {
			ops = append(ops, scriptOp{"n", g.key(), []string{token}, g.record()})
		}
		return append(ops, scriptOp{"a", g.key(), []string{token, g.ttl(token)}, g.record()})
	case 1: // if the operation is refused, the client waits
		o := g.operation()
		return []scriptOp{o, {letter: "i", key: o.key, args: []string{g.waiter(), g.pick("4", "9")}}}
	}
	return []scriptOp{g.operation()}
}

func (g generator) operation() scriptOp {
	key, token := g.key(), g.value()
	switch letter := g.pick("a", "a", "e", "g", "u", "v", "r", "r", "w", "f", "p", "x", "z", "s", "s", "s", "q", "h", "i", "k", "d"); letter {
	case "a", "p":
		return scriptOp{letter, key, []string{token, g.ttl(token)}, g.record()}
	case "s":
		token, kind := g.sharer()
		return scriptOp{letter, key, []string{token, kind, g.ttl(token)}, g.record()}
	case "q":
		token, kind := g.sharer()
		return scriptOp{letter, key, []string{token, g.ttl(token), kind}, g.record()}
	case "h":
		return scriptOp{letter, key, []string{g.value(), token, g.ttl(token)}, g.record()}
	case "f":
		return scriptOp{letter, key, []string{token}, g.record()}
	case "i", "k":
		return scriptOp{letter: letter, key: key, args: []string{g.waiter(), g.pick("4", "9")}}
	case "d":
		return opEndWait(key, g.waiter())
	case "e":
		return opExtend(key, token, g.ttl(token))
	case "u":
		return opExchange(key, g.value(), token, g.ttl(token))
	case "g":
		return opDowngrade(key, token, g.ttl(token))
	case "v":
		return scriptOp{letter, key, []string{token, g.ttl(token)}, g.record()}
	case "x":
		return opForce(key, token, g.ttl(token))
	case "z":
		return opNoteForced(key, token, g.ttl(token))
	case "r":
		return opRelease(key, token)
	default:
		return opWhoAfter(key, g.value())
	}
}

// sharer returns a token that shares a lock, and the kind of the lock.
func (g generator) sharer() (token, kind string) {
	if g.IntN(2) == 0 {
		return g.value(), "redlockd:shared"
	}
	return g.pick("1 mine", "2 mine", "1 theirs", "2 theirs", "3 theirs"), g.pick("redlockd:slots=3", "redlockd:slots=3", "redlockd:slots=5")
}

func (g generator) record() string {
	return g.pick("aa", "ab") + g.pick("0000000000000000", "0000000000000033", "9000000000000000")
}

func (g generator) pick(words ...string) string { return words[g.IntN(len(words))] }

// waiter returns an entry. Its turn lasts for about as long as a ttl.
func (g generator) waiter() string {
	return g.pick("h1 - 900000 w1", "h1 - 900000 w1", "h2 - 900000 w2", "h2 redlockd:shared 900000 w3", "h1 redlockd:slots=3 900000 w4", "h1 - 900000 w5", "none")
}

func (g generator) key() string { return g.pick("a", "a", "b", "c") }

// value returns a token. Most are tokens of exclusive holders and of readers.
func (g generator) value() string {
	return g.pick("mine", "mine", "mine", "theirs", "theirs", "1 mine", "1 theirs", "2 theirs")
}

// ttl is far from the ttl of any other token, because the holders of a shared lock are shown in the
// order of their expiry.
func (g generator) ttl(token string) string {
	i := slices.Index([]string{"mine", "theirs", "1 mine", "2 mine", "1 theirs", "2 theirs", "3 theirs"}, token)
	return strconv.Itoa(100_000 * (1 + 7*g.IntN(2) + i))
}
