package simredis

import (
	"crypto/sha1"
	"encoding/hex"
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
	write bool   // a replica refuses it
	run   func(call) redlock.Reply
}

// call is one command during its execution.
type call struct {
	*State
	client *Client
	now    int64 // microseconds
	args   []string
}

const (
	reads  = false
	writes = true
)

var commands = index(
	command{"PING", 1, -1, reads, ping},
	command{"TIME", 1, 1, reads, timeOfDay},
	command{"CLIENT ID", 2, 2, reads, clientID},
	command{"CLIENT KILL", 2, -3, reads, clientKill},
	command{"CLIENT SETNAME", 2, 3, reads, clientSetName},
	command{"CLIENT GETNAME", 2, 2, reads, clientGetName},
	command{"CLIENT TRACKING", 2, -3, reads, clientTracking},
	command{"CLIENT CACHING", 2, 3, reads, clientCaching},
	command{"INFO", 1, -1, reads, infoCommand},
	command{"CONFIG GET", 2, -3, reads, configGet},
	command{"CONFIG RESETSTAT", 2, 2, reads, configResetStat},
	command{"ACL DRYRUN", 2, -4, reads, aclDryRun},
	command{"SCRIPT LOAD", 2, 3, reads, scriptLoad},
	command{"SCRIPT FLUSH", 2, -2, reads, scriptFlush},
	command{"EVALSHA", 1, -3, reads, evalSHA},
	command{"GET", 1, 2, reads, get},
	command{"MGET", 1, -2, reads, mget},
	command{"SET", 1, -3, writes, set},
	command{"DEL", 1, -2, writes, del},
	command{"PTTL", 1, 2, reads, pttl},
	command{"EXISTS", 1, -2, reads, exists},
	command{"KEYS", 1, 2, reads, keysCommand},
	command{"HGET", 1, 3, reads, hgetCommand},
	command{"HMGET", 1, -3, reads, hmgetCommand},
	command{"HSET", 1, -4, writes, hsetCommand},
	command{"HDEL", 1, -3, writes, hdelCommand},
	command{"HGETALL", 1, 2, reads, hgetallCommand},
	command{"LPUSH", 1, -3, writes, lpush},
	command{"FLUSHALL", 1, -1, writes, flushAll},
)

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
	errExpire    = redlock.ServerError("ERR invalid expire time in 'set' command")
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

func scriptLoad(c call) redlock.Reply {
	sum := sha1.Sum([]byte(c.args[0]))
	sha := hex.EncodeToString(sum[:])
	c.Scripts[sha] = true
	return Text(sha)
}

func scriptFlush(c call) redlock.Reply {
	if len(c.args) > 1 || len(c.args) == 1 && !isSyncWord(c.args[0]) {
		return Failed("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	clear(c.Scripts)
	return Text("OK")
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

// set executes SET key value [NX] [PX milliseconds].
func set(c call) redlock.Reply {
	nx, px := false, ""
	for options := c.args[2:]; len(options) > 0; options = options[1:] {
		switch {
		case strings.EqualFold(options[0], "NX"):
			nx = true
		case strings.EqualFold(options[0], "PX") && len(options) > 1 && px == "":
			px = options[1]
			options = options[1:]
		default:
			return Refuse(errSyntax)
		}
	}
	return c.store(c.args[0], c.args[1], nx, px)
}

// store sets key to value. px is the time to live in milliseconds, or "" for none.
func (c call) store(key, value string, nx bool, px string) redlock.Reply {
	if err := c.mayWrite(); err != nil {
		return Refuse(err)
	}
	e := entry{Text: value}
	if px != "" {
		ms, err := strconv.ParseInt(px, 10, 64)
		if err != nil {
			return Refuse(errNotNumber)
		}
		if ms <= 0 || ms > math.MaxInt64-c.now/1000 {
			return Refuse(errExpire)
		}
		e.expiry = c.now/1000 + ms
	}
	if _, taken := c.Lookup(key, c.now); taken && nx {
		return Null()
	}
	c.put(key, e)
	return Text("OK")
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
