package simredis

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// command is a command that the simulated node supports.
type command struct {
	name  string // "SET", "CLIENT KILL"
	words int    // of the name
	arity int    // number of words; negative: at least so many
	flags flags
	run   func(call) redlock.Reply
}

// call is one command during its execution.
type call struct {
	*State
	client *Client
	now    int64 // microseconds
	args   []string
}

// flags tells what a command is, and what it replies to a script. Without one, it only reads, and
// replies strings.
type flags int

const (
	writes   flags = 1 << iota // a replica refuses it
	number                     // it replies a number
	status                     // it replies a status
	noScript                   // scripts must not call it

	reads flags = 0
)

var commands map[string]*command

func init() { // because EVALSHA calls commands
	commands = index(
		command{"PING", 1, -1, status, ping},
		command{"TIME", 1, 1, reads, timeOfDay},
		command{"CLIENT ID", 2, 2, noScript, clientID},
		command{"CLIENT KILL", 2, -3, noScript, clientKill},
		command{"CLIENT SETNAME", 2, 3, noScript, clientSetName},
		command{"CLIENT GETNAME", 2, 2, noScript, clientGetName},
		command{"INFO", 1, -1, reads, infoCommand},
		command{"CONFIG GET", 2, -3, noScript, configGet},
		command{"CONFIG RESETSTAT", 2, 2, noScript, configResetStat},
		command{"ACL DRYRUN", 2, -4, noScript, aclDryRun},
		command{"SCRIPT LOAD", 2, 3, noScript, scriptLoad},
		command{"SCRIPT FLUSH", 2, -2, noScript, scriptFlush},
		command{"EVALSHA", 1, -3, noScript, evalSHA},
		command{"SUBSCRIBE", 1, -2, noScript, subscribe},
		command{"PUBLISH", 1, 3, number, publish},
		command{"GET", 1, 2, reads, get},
		command{"MGET", 1, -2, reads, mget},
		command{"SET", 1, -3, writes | status, set},
		command{"DEL", 1, -2, writes | number, del},
		command{"PTTL", 1, 2, number, pttl},
		command{"PEXPIRE", 1, -3, writes | number, pexpire},
		command{"PEXPIREAT", 1, -3, writes | number, pexpireAt},
		command{"EXISTS", 1, -2, number, exists},
		command{"KEYS", 1, 2, reads, keysCommand},
		command{"SCAN", 1, -2, reads, scan},
		command{"HGET", 1, 3, reads, hgetCommand},
		command{"HMGET", 1, -3, reads, hmgetCommand},
		command{"HSET", 1, -4, writes | number, hsetCommand},
		command{"HDEL", 1, -3, writes | number, hdelCommand},
		command{"HGETALL", 1, 2, reads, hgetallCommand},
		command{"ZADD", 1, -4, writes | number, zadd},
		command{"ZREM", 1, -3, writes | number, zrem},
		command{"ZSCORE", 1, 3, reads, zscore},
		command{"ZCARD", 1, 2, number, zcard},
		command{"ZRANK", 1, 3, number, zrank},
		command{"ZCOUNT", 1, 4, number, zcount},
		command{"ZRANGE", 1, -4, reads, zrange},
		command{"LPUSH", 1, -3, writes | number, lpush},
		command{"FLUSHALL", 1, -1, writes | status, flushAll},
	)
}

func index(list ...command) map[string]*command {
	byName := make(map[string]*command, len(list))
	for i := range list {
		byName[list[i].name] = &list[i]
	}
	return byName
}

// find returns the command with this name; nil if there is none.
func find(words redlock.Command) *command {
	if known := commands[words[0]]; known != nil { // the usual case
		return known
	}
	name := strings.ToUpper(words[0])
	if known := commands[name]; known != nil || len(words) == 1 {
		return known
	}
	return commands[name+" "+strings.ToUpper(words[1])]
}

func (c *command) takes(words int) bool {
	return words == c.arity || c.arity < 0 && words >= -c.arity
}

// errorName returns the name that Redis uses in errors: "get", "client|id".
func (c *command) errorName() string {
	return strings.ReplaceAll(strings.ToLower(c.name), " ", "|")
}

func unknownCommand(words redlock.Command) redlock.Reply {
	switch name := strings.ToUpper(words[0]); name {
	case "ACL", "CLIENT", "CONFIG", "SCRIPT":
		if len(words) == 1 {
			return Failed("ERR wrong number of arguments for '%s' command", strings.ToLower(name))
		}
		return Failed("ERR unknown subcommand '%s'. Try %s HELP.", words[1], name)
	}
	var args strings.Builder
	for _, arg := range words[1:] {
		fmt.Fprintf(&args, "'%s' ", arg)
	}
	return Failed("ERR unknown command '%s', with args beginning with: %s", words[0], args.String())
}

func Text(s string) redlock.Reply    { return redlock.Reply{Str: s} }
func Number(n int64) redlock.Reply   { return redlock.Reply{Int: n} }
func Null() redlock.Reply            { return redlock.Reply{Nil: true} }
func Refuse(err error) redlock.Reply { return redlock.Reply{Err: err} }
func List(items ...redlock.Reply) redlock.Reply {
	return redlock.Reply{Array: append([]redlock.Reply{}, items...)}
}

func texts(items []string) redlock.Reply {
	reply := redlock.Reply{Array: make([]redlock.Reply, len(items))}
	for i, item := range items {
		reply.Array[i] = Text(item)
	}
	return reply
}

func Failed(format string, args ...any) redlock.Reply {
	return Refuse(redlock.ServerError(fmt.Sprintf(format, args...)))
}

const (
	errSyntax    = redlock.ServerError("ERR syntax error")
	errNotNumber = redlock.ServerError("ERR value is not an integer or out of range")
	errWrongType = redlock.ServerError("WRONGTYPE Operation against a key holding the wrong kind of value")
	ErrReadOnly  = redlock.ServerError("READONLY You can't write against a read only replica.")
	ErrNoScript  = redlock.ServerError("NOSCRIPT No matching script. Please use EVAL.")
)

func ping(c call) redlock.Reply {
	switch len(c.args) {
	case 0:
		return Text("PONG")
	case 1:
		return Text(c.args[0])
	}
	return Failed("ERR wrong number of arguments for 'ping' command")
}

func timeOfDay(c call) redlock.Reply {
	return texts([]string{
		strconv.FormatInt(c.now/1_000_000, 10),
		strconv.FormatInt(c.now%1_000_000, 10),
	})
}

func clientID(c call) redlock.Reply { return Number(c.client.Id) }

// clientKill executes CLIENT KILL ID n. As in Redis, it does not kill the caller.
func clientKill(c call) redlock.Reply {
	if len(c.args) == 1 {
		return Failed("ERR No such client") // the old form, by address
	}
	if len(c.args) != 2 || !strings.EqualFold(c.args[0], "ID") {
		return Refuse(errSyntax)
	}
	id, err := strconv.ParseInt(c.args[1], 10, 64)
	switch {
	case err != nil || id <= 0:
		return Failed("ERR client-id should be greater than 0")
	case id == c.client.Id:
		return Number(0)
	}
	return Number(c.Kill(id))
}

func clientSetName(c call) redlock.Reply {
	name := c.args[0]
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		return Failed("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	c.client.name = name
	return Text("OK")
}

func clientGetName(c call) redlock.Reply {
	if c.client.name == "" {
		return Null()
	}
	return Text(c.client.name)
}

func isSyncWord(word string) bool {
	return strings.EqualFold(word, "SYNC") || strings.EqualFold(word, "ASYNC")
}

func get(c call) redlock.Reply {
	e, ok := c.Lookup(c.args[0], c.now)
	switch {
	case !ok:
		return Null()
	case !e.isString():
		return Refuse(errWrongType)
	}
	return Text(e.Text)
}

// mget returns null for a key that is not a string.
func mget(c call) redlock.Reply {
	replies := make([]redlock.Reply, len(c.args))
	for i, key := range c.args {
		if replies[i] = get(c.with(key)); replies[i].Err != nil {
			replies[i] = Null()
		}
	}
	return redlock.Reply{Array: replies}
}

// set executes SET key value [NX] [GET] [PX milliseconds | PXAT milliseconds | KEEPTTL].
func set(c call) redlock.Reply {
	nx, get, expiry, at := false, false, "", ""
	for options := c.args[2:]; len(options) > 0; options = options[1:] {
		switch option := strings.ToUpper(options[0]); {
		case option == "NX":
			nx = true
		case option == "GET":
			get = true
		case option == "KEEPTTL" && (expiry == "" || expiry == option):
			expiry = option
		case (option == "PX" || option == "PXAT") && len(options) > 1 && expiry == "":
			expiry, at = option, options[1]
			options = options[1:]
		default:
			return Refuse(errSyntax)
		}
	}
	key, e := c.args[0], entry{Text: c.args[1]}
	if at != "" {
		ms, ok := parseInt(at)
		if !ok {
			return Refuse(errNotNumber)
		}
		if ms <= 0 || expiry == "PX" && ms > math.MaxInt64-c.now/1000 {
			return Failed("ERR invalid expire time in 'set' command")
		}
		if e.expiry = ms; expiry == "PX" {
			e.expiry += c.now / 1000
		}
	}
	before, taken := c.Lookup(key, c.now)
	if get && !before.isString() {
		return Refuse(errWrongType)
	}
	reply := Text("OK")
	switch {
	case get && taken:
		reply = Text(before.Text)
	case get, taken && nx:
		reply = Null()
	}
	if taken && nx {
		return reply
	}
	if expiry == "KEEPTTL" {
		e.expiry = before.expiry
	}
	c.put(key, e)
	return reply
}

// parseInt parses a number that is written as Redis writes it.
func parseInt(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	var written [20]byte
	return n, err == nil && string(strconv.AppendInt(written[:0], n, 10)) == text
}

// pexpire executes PEXPIRE key milliseconds [GT].
func pexpire(c call) redlock.Reply { return c.expire("pexpire", c.now/1000) }

// pexpireAt executes PEXPIREAT key milliseconds [GT].
func pexpireAt(c call) redlock.Reply { return c.expire("pexpireat", 0) }

// expire sets the expiry of a key that exists, counted from begin. With GT it only lengthens it; a
// key that never expires stays so.
func (c call) expire(name string, begin int64) redlock.Reply {
	greater := false
	for _, option := range c.args[2:] {
		switch {
		case strings.EqualFold(option, "GT"):
			greater = true
		case strings.EqualFold(option, "NX") || strings.EqualFold(option, "XX") || strings.EqualFold(option, "LT"):
			return Refuse(simError("%s with %s", name, option))
		default:
			return Failed("ERR Unsupported option %s", option)
		}
	}
	at, ok := parseInt(c.args[1])
	switch {
	case !ok:
		return Refuse(errNotNumber)
	case at > math.MaxInt64-begin:
		return Failed("ERR invalid expire time in '%s' command", name)
	}
	at += begin
	key := c.args[0]
	e, ok := c.Lookup(key, c.now)
	switch {
	case !ok || greater && (e.expiry == 0 || at <= e.expiry):
		return Number(0)
	case at <= c.now/1000:
		c.drop(key)
	default:
		e.expiry = at
		c.put(key, e)
	}
	return Number(1)
}

func del(c call) redlock.Reply {
	deleted := int64(0)
	for _, key := range c.args {
		if _, ok := c.Lookup(key, c.now); ok {
			c.drop(key)
			deleted++
		}
	}
	return Number(deleted)
}

func pttl(c call) redlock.Reply {
	e, ok := c.Lookup(c.args[0], c.now)
	switch {
	case !ok:
		return Number(-2)
	case e.expiry == 0:
		return Number(-1)
	}
	return Number(e.expiry - c.now/1000)
}

func exists(c call) redlock.Reply {
	found := int64(0)
	for _, key := range c.args {
		if _, ok := c.Lookup(key, c.now); ok {
			found++
		}
	}
	return Number(found)
}

func keysCommand(c call) redlock.Reply { return texts(c.SortedKeys(c.args[0], c.now)) }

func lpush(c call) redlock.Reply {
	e, ok := c.Lookup(c.args[0], c.now)
	if ok && e.list == nil {
		return Refuse(errWrongType)
	}
	for _, item := range c.args[1:] {
		e.list = append([]string{item}, e.list...)
	}
	c.put(c.args[0], e)
	return Number(int64(len(e.list)))
}

func flushAll(c call) redlock.Reply {
	if len(c.args) > 1 || len(c.args) == 1 && !isSyncWord(c.args[0]) {
		return Refuse(errSyntax)
	}
	c.Flush()
	return Text("OK")
}

func (c call) with(args ...string) call {
	c.args = args
	return c
}
