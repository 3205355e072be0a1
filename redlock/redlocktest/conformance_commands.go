package redlocktest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

var commandCases = []conformanceCase{
	{"PING", nil, checkPing},
	{"TIME", nil, checkTime},
	{"CLIENT ID", []Feature{ClientID}, checkClientID},
	{"CLIENT SETNAME", nil, checkSetName},
	{"INFO", []Feature{ServerInfo}, checkInfo},
	{"INFO of several sections", []Feature{ServerInfo}, checkInfoSections},
	{"CONFIG RESETSTAT", []Feature{ServerInfo}, checkResetStat},
	{"ACL DRYRUN", []Feature{ServerInfo}, checkDryRun},
	{"GET and SET", nil, checkStrings},
	{"SET PX", nil, checkExpiry},
	{"DEL EXISTS KEYS FLUSHALL", nil, checkKeys},
	{"hashes", nil, checkHashes},
	{"wrong type", nil, checkWrongType},
	{"wrong type of a hash", nil, checkHashWrongType},
	{"wrong requests", nil, checkErrors},
	{"wrong number of arguments", []Feature{RedisWords}, checkArity},
	{"group", nil, checkGroup},
}

func checkPing(p *probe) {
	p.expect(text("PONG"), "PING")
	p.expect(text("PONG"), "ping")
}

func checkTime(p *probe) {
	before := p.micros()
	if after := p.micros(); after < before {
		p.Errorf("TIME went from %d to %d", before, after)
	}
	if off := time.Since(time.UnixMicro(before)).Abs(); off > patience {
		p.Errorf("TIME differs from this host's clock by %v", off)
	}
}

// micros returns the node's TIME in microseconds.
func (p *probe) micros() int64 {
	p.Helper()
	reply := p.do("TIME")
	if len(reply.Array) != 2 {
		p.Fatalf("TIME: got %s, want two strings", show(reply))
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	if err1 != nil || err2 != nil || micros < 0 || micros > 999_999 {
		p.Fatalf("TIME: got %s, want seconds and microseconds as strings", show(reply))
	}
	return seconds*1_000_000 + micros
}

func checkClientID(p *probe) {
	other := p.on(p.dial())
	first, second := p.do("CLIENT", "ID").Int, other.do("CLIENT", "ID").Int
	if first <= 0 || second <= first {
		p.Errorf("CLIENT ID: got %d, and %d on a later connection, want rising ids from 1", first, second)
	}
	p.expect(number(first), "client", "id")
}

func checkSetName(p *probe) {
	p.expect(text("OK"), "CLIENT", "SETNAME", "lane-7")
	p.expect(text("lane-7"), "CLIENT", "GETNAME")
}

func checkInfo(p *probe) {
	server := p.do("INFO", "server").Str
	runID := infoLine(server, "run_id")
	if len(runID) != 40 || infoLine(server, "role") != "" {
		p.Errorf("INFO server: got run_id %q and role %q, want 40 digits and no role in\n%s", runID, infoLine(server, "role"), server)
	}
	all := p.do("INFO").Str
	if infoLine(all, "run_id") != runID || infoLine(all, "role") != "master" || len(infoLine(all, "master_replid")) != 40 {
		p.Errorf("INFO: want the same run_id, role master and a master_replid in\n%s", all)
	}
}

// checkInfoSections checks the fields that identify an incarnation, and those that decide whether a
// node may vote.
func checkInfoSections(p *probe) {
	want := map[string]string{
		"maxmemory": "0", "maxmemory_policy": "noeviction",
		"loading": "0", "aof_enabled": "0", "aof_last_write_status": "ok",
		"aof_last_bgrewrite_status": "ok", "aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0",
		"role": "master", "connected_slaves": "0", "cluster_enabled": "0",
	}
	got := p.do("INFO", "SERVER", "memory", "persistence", "Replication", "cluster").Str
	if mode := infoLine(got, "redis_mode") + infoLine(got, "server_mode"); mode != "standalone" { // Valkey has server_mode
		p.Errorf("INFO: redis_mode or server_mode is %q, want standalone", mode)
	}
	for key, value := range want {
		if infoLine(got, key) != value {
			p.Errorf("INFO: %s is %q, want %q", key, infoLine(got, key), value)
		}
	}
	for _, key := range []string{"run_id", "master_replid"} {
		if len(infoLine(got, key)) != 40 {
			p.Errorf("INFO: %s is %q, want 40 digits", key, infoLine(got, key))
		}
	}
	if infoLine(got, "run_id") == infoLine(got, "master_replid") || infoLine(got, "master_link_status") != "" {
		p.Errorf("INFO of a master: want a master_replid of its own and no master_link_status in\n%s", got)
	}
	if uptime, err := strconv.Atoi(infoLine(got, "uptime_in_seconds")); err != nil || uptime < 0 {
		p.Errorf("INFO: uptime_in_seconds is %q, want seconds", infoLine(got, "uptime_in_seconds"))
	}
	if stats := infoLine(got, "total_commands_processed"); stats != "" {
		p.Errorf("INFO without stats: total_commands_processed is %s, want none", stats)
	}
}

func checkResetStat(p *probe) {
	p.expect(text("PONG"), "PING")
	p.expect(text("OK"), "CONFIG", "RESETSTAT")
	p.expect(text("PONG"), "PING")
	if got := infoLine(p.do("INFO", "stats").Str, "total_commands_processed"); got != "2" {
		p.Errorf("total_commands_processed after CONFIG RESETSTAT and PING: got %s, want 2", got)
	}
}

// checkDryRun checks ACL DRYRUN for a user default that may run all commands.
func checkDryRun(p *probe) {
	p.expect(text("OK"), "ACL", "DRYRUN", "default", "SET", "k", "v")
	p.expect(null(), "GET", "k")
	p.expect(failed("ERR wrong number of arguments for 'acl|dryrun' command"), "ACL", "DRYRUN", "default")
	p.expect(failed("ERR User 'nobody' not found"), "ACL", "DRYRUN", "nobody", "SET", "k", "v")
	p.expect(failed("ERR unknown subcommand 'NOSUCH'. Try ACL HELP."), "ACL", "NOSUCH")
}

func infoLine(info, key string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return value
		}
	}
	return ""
}

func checkStrings(p *probe) {
	p.expect(null(), "GET", "k")
	p.expect(text("OK"), "SET", "k", "v 1")
	p.expect(text("v 1"), "GET", "k")
	p.expect(number(-1), "PTTL", "k")
	p.expect(null(), "SET", "k", "v2", "NX")
	p.expect(null(), "SET", "k", "v2", "NX", "PX", "5000")
	p.expect(text("v 1"), "GET", "k")
	p.expect(text("v 1"), "SET", "k", "v 2", "PX", "60000", "GET")
	p.expect(text("v 2"), "SET", "k", "v 3", "NX", "GET")
	p.expect(text("v 2"), "GET", "k")
	p.expect(null(), "SET", "missing", "v", "GET")
	p.expect(text("v"), "GET", "missing")
	p.expect(number(1), "DEL", "missing")
	p.expect(text("OK"), "SET", "k", "")
	p.expect(text(""), "GET", "k")
	p.expect(list(text(""), null(), text("")), "MGET", "k", "none", "k")
	p.expect(text("OK"), "SET", "new", "v", "px", "60000", "nx")
	p.expectTTL("new", 50*time.Second, time.Minute)
	p.expect(text("OK"), "SET", "new", "v")
	p.expect(number(-1), "PTTL", "new")
}

func checkExpiry(p *probe) {
	p.expect(text("OK"), "SET", "k", "v", "NX", "PX", "40")
	p.eventually("expiry of a key of 40 ms", func() bool { return p.do("PTTL", "k").Int == -2 })
	p.expect(null(), "GET", "k")
	p.expect(number(0), "EXISTS", "k")
	p.expect(list(), "KEYS", "*")
	p.expect(text("OK"), "SET", "k", "v", "NX", "PX", "60000")
}

func checkKeys(p *probe) {
	for _, key := range []string{"lock:a", "lock:b/c", "other"} {
		p.expect(text("OK"), "SET", key, "v")
	}
	p.expect(number(3), "EXISTS", "lock:a", "lock:a", "none", "other")
	p.expect(list(text("other")), "KEYS", "ot*")
	if got := len(p.do("KEYS", "*").Array); got != 3 {
		p.Errorf("KEYS *: got %d keys, want 3", got)
	}
	p.expect(number(2), "DEL", "lock:a", "none", "other")
	p.expect(list(text("lock:b/c")), "KEYS", "*")
	p.expect(text("OK"), "FLUSHALL")
	p.expect(list(), "KEYS", "*")
}

func checkHashes(p *probe) {
	p.expect(null(), "HGET", "h", "f")
	p.expect(list(null(), null()), "HMGET", "h", "f", "g")
	p.expect(number(0), "HDEL", "h", "f")
	p.expect(number(2), "HSET", "h", "f", "1", "g", "")
	p.expect(number(1), "HSET", "h", "f", "v 2", "h", "3")
	p.expect(text("v 2"), "HGET", "h", "f")
	p.expect(text(""), "hget", "h", "g")
	p.expect(list(text("3"), null(), text("v 2"), text("3")), "HMGET", "h", "h", "nosuch", "f", "h")
	p.expect(number(1), "EXISTS", "h")
	p.expect(number(-1), "PTTL", "h")
	p.expect(list(text("h")), "KEYS", "*")
	p.expect(number(2), "HDEL", "h", "f", "nosuch", "g", "g")
	p.expect(number(1), "HDEL", "h", "h")
	p.expect(number(0), "EXISTS", "h")
	p.expect(number(1), "HSET", "h", "f", "v")
	p.expect(number(1), "DEL", "h")
	p.expect(null(), "HGET", "h", "f")
}

func checkHashWrongType(p *probe) {
	wrongType := failed("WRONGTYPE")
	p.expect(number(1), "HSET", "h", "f", "v")
	p.expect(wrongType, "GET", "h")
	p.expect(list(null(), null()), "MGET", "none", "h")
	p.expect(wrongType, "LPUSH", "h", "v")
	p.expect(null(), "SET", "h", "v", "NX")
	p.expect(text("OK"), "SET", "h", "v")
	p.expect(wrongType, "HSET", "h", "f", "v")
	p.expect(wrongType, "HGET", "h", "f")
	p.expect(wrongType, "HMGET", "h", "f", "g")
	p.expect(wrongType, "HDEL", "h", "f")
	p.expect(text("v"), "GET", "h")
}

func checkWrongType(p *probe) {
	wrongType := failed("WRONGTYPE")
	p.expect(number(2), "LPUSH", "l", "v", "w")
	p.expect(wrongType, "GET", "l")
	p.expect(null(), "SET", "l", "v", "NX")
	p.expect(failed("WRONGTYPE"), "SET", "l", "v", "GET")
	p.expect(number(-1), "PTTL", "l")
	p.expect(text("OK"), "SET", "l", "v")
	p.expect(wrongType, "LPUSH", "l", "v")
}

func checkErrors(p *probe) {
	p.expect(failed("ERR unknown command"), "NOSUCH", "a", "b")
	p.expect(failed("ERR unknown"), "CLIENT", "NOSUCH")
	p.expect(failed("ERR syntax error"), "SET", "k", "v", "NOSUCH")
	p.expect(failed("ERR"), "SET", "k", "v", "PX")
	p.expect(failed("ERR invalid expire time"), "SET", "k", "v", "PX", "0")
	p.expect(failed("ERR value is not an integer or out of range"), "SET", "k", "v", "PX", "soon")
	p.expect(null(), "GET", "k")
}

func checkArity(p *probe) {
	for _, c := range []struct{ command, name string }{
		{"GET", "get"}, {"SET k", "set"}, {"TIME now", "time"}, {"DEL", "del"}, {"KEYS", "keys"},
		{"EVALSHA x", "evalsha"}, {"CLIENT", "client"}, {"CLIENT ID x", "client|id"}, {"SCRIPT LOAD", "script|load"},
		{"HGET h", "hget"}, {"HMGET h", "hmget"}, {"HSET h f", "hset"}, {"HSET h f v g", "hset"}, {"HDEL h", "hdel"},
		{"CONFIG", "config"}, {"CONFIG GET", "config|get"}, {"CONFIG RESETSTAT x", "config|resetstat"},
	} {
		p.expect(failed("ERR wrong number of arguments for '%s' command", c.name), strings.Fields(c.command)...)
	}
	p.expect(failed("ERR Number of keys can't be negative"), "EVALSHA", luaScript(p, "ballot").SHA, "-1")
	p.expect(failed("ERR Number of keys can't be greater than number of args"), "EVALSHA", luaScript(p, "ballot").SHA, "2", "k")
}

// checkGroup checks that the commands of a group are answered in order, and that a failed one does
// not affect the others.
func checkGroup(p *probe) {
	commands, want := []redlock.Command{}, []redlock.Reply{}
	for i := range 200 {
		key := strconv.Itoa(i)
		commands = append(commands, redlock.Command{"SET", key, key}, redlock.Command{"NOSUCH", key}, redlock.Command{"GET", key})
		want = append(want, text("OK"), failed("ERR"), text(key))
	}
	for i, got := range p.group(commands...) {
		if !same(got, want[i]) {
			p.Errorf("command %d of the group, %q\n got %s\nwant %s", i, commands[i], show(got), show(want[i]))
		}
	}
}

var scanCases = []conformanceCase{
	{"scan", nil, checkScan},
	{"describe", nil, checkDescribe},
}

func opScan(cursor, pattern string) scriptOp {
	return scriptOp{letter: "y", key: NodeKey, args: []string{cursor, pattern, "10"}}
}

func opDescribe(key string) scriptOp { return scriptOp{letter: "o", key: key} }

// checkScan checks that the pages together contain each key that matches, and that the scan ends.
func checkScan(p *probe) {
	p.admit()
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("k:%02d", i))
		p.expect(text("OK"), "SET", want[i], "v", "PX", minute)
	}
	p.expect(text("OK"), "SET", "other", "v", "PX", minute)
	got, cursor := map[string]bool{}, "0"
	for range 1000 {
		page := p.vote(p.ballot(opScan(cursor, "k:*")))
		if len(page.Array) != 2 {
			p.Fatalf("a page is %s, want a cursor and keys", show(page))
		}
		for _, key := range page.Array[1].Array {
			got[key.Str] = true
		}
		if cursor = page.Array[0].Str; cursor == "0" {
			break
		}
	}
	keys := make([]string, 0, len(got))
	for key := range got {
		keys = append(keys, key)
	}
	if slices.Sort(keys); cursor != "0" || !slices.Equal(keys, want) {
		p.Errorf("scan: got %q and cursor %s, want %q and the end", keys, cursor, want)
	}
	p.expectVote(failed("ERR"), p.ballot(opScan("x", "k:*")))
}

// checkDescribe checks what DESCRIBE shows of locks that are free, held, shared and waited for.
func checkDescribe(p *probe) {
	describe := func(what, holder string, waiters ...string) {
		p.Helper()
		got := p.vote(p.ballot(opDescribe("k")))
		if len(got.Array) != 2 || len(got.Array[1].Array) != 2*len(waiters) {
			p.Fatalf("%s: got %s, want a holder and %d waiters", what, show(got), len(waiters))
		}
		if shown := got.Array[0].Array; holder != "" && !slices.ContainsFunc(shown, func(r redlock.Reply) bool { return r.Str == holder }) || holder == "" && len(shown) > 0 {
			p.Errorf("%s: got %s, want the holder %q", what, show(got), holder)
		}
		for i, waiter := range waiters {
			if token, waited := got.Array[1].Array[2*i].Str, got.Array[1].Array[2*i+1].Int; token != "waiter-"+waiter || waited <= 0 {
				p.Errorf("%s: got %s, want the waiter %q", what, show(got), waiter)
			}
		}
	}
	p.admit()
	p.expectVote(list(list(), list()), p.ballot(opDescribe("k")))
	p.hold("mine")
	describe("held", "mine")
	p.enters("a", "b")
	describe("waited for", "mine", "a", "b")
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	describe("the turn of a waiter", "waiter-a", "a", "b")
	p.do("DEL", "k\x00q", "k\x00t")
	for i := range 10 {
		p.vote(p.ballot(opJoinShared("k", fmt.Sprint("reader", i), minute)))
	}
	describe("shared by ten readers", "reader9")
	p.vote(p.ballot(opJoinShared("k", "one more", minute)))
	describe("shared by more readers", simredis.KindShared)
	p.do("DEL", "k")
	p.expect(number(1), "LPUSH", "k", "v")
	p.expectVote(failed("WRONGTYPE"), p.ballot(opDescribe("k")))
}
