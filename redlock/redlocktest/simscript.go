package redlocktest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// script is a Go function with the meaning of one of package redlock's Lua
// scripts.
type script struct {
	name string
	run  func(c call, keys, argv []string) redlock.Reply
}

var scriptFuncs = map[string]func(c call, keys, argv []string) redlock.Reply{
	"ballot": ballot,
}

var scriptsBySHA = indexScripts()

func indexScripts() map[string]script {
	bySHA := map[string]script{}
	for _, s := range redlock.Scripts() {
		bySHA[s.SHA] = script{s.Name, scriptFuncs[s.Name]}
	}
	return bySHA
}

// evalSHA: EVALSHA sha numkeys [key …] [arg …]
func evalSHA(c call) redlock.Reply {
	sha := strings.ToLower(c.args[0])
	n, err := strconv.Atoi(c.args[1])
	switch {
	case len(sha) != 40: // looked at first, as Redis does
		return refuse(errNoScript)
	case err != nil:
		return refuse(errNotNumber)
	case n > len(c.args)-2:
		return failed("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return failed("ERR Number of keys can't be negative")
	case !c.scripts[sha]:
		return refuse(errNoScript)
	}
	known := scriptsBySHA[sha]
	if known.run == nil {
		return failed("ERR redlocktest: script %s (%q) has no Go function: write one in simscript.go", sha, known.name)
	}
	return known.run(c, c.args[2:2+n], c.args[2+n:])
}

// operation is one of those that ballot.lua knows by a letter.
type operation struct {
	args int
	run  func(c call, key string, args []string) redlock.Reply
}

var operations = map[string]operation{
	"a": {3, acquire},
	"e": {2, extend},
	"r": {1, release},
	"w": {0, who},
}

// ballot is ballot.lua: the operations in turn, each with its own reply.
func ballot(c call, keys, argv []string) redlock.Reply {
	replies := make([]redlock.Reply, len(keys))
	for i, key := range keys {
		op, err := nextOperation(argv)
		if err != nil {
			return refuse(err)
		}
		replies[i] = op.run(c, key, argv[1:1+op.args])
		argv = argv[1+op.args:]
	}
	return redlock.Reply{Array: replies}
}

// nextOperation checks what Lua would fail on somewhere in the middle.
func nextOperation(argv []string) (operation, error) {
	if len(argv) == 0 {
		return operation{}, redlock.ServerError("ERR redlocktest: ballot: more keys than operations")
	}
	op, ok := operations[argv[0]]
	if !ok || len(argv) < 1+op.args {
		return op, redlock.ServerError(fmt.Sprintf("ERR redlocktest: ballot: %q is no operation with its arguments", argv))
	}
	return op, nil
}

// acquire: token, ttl in milliseconds, not-after in microseconds.
func acquire(c call, key string, args []string) redlock.Reply {
	notAfter, err := strconv.ParseFloat(args[2], 64)
	if err != nil {
		return failed("ERR redlocktest: ballot: %q is no not-after", args[2])
	}
	if float64(c.now) > notAfter {
		return failed("LATE the attempt was over when it reached this node")
	}
	if stored := c.store(key, args[0], true, args[1]); !stored.Nil {
		if stored.Err != nil {
			return stored
		}
		return number(1)
	}
	if c.holds(key, args[0]) {
		return number(1)
	}
	return who(c, key, nil)
}

// extend: token, ttl in milliseconds. PEXPIRE … GT: a key that never expires
// has the greatest of all expiries.
func extend(c call, key string, args []string) redlock.Reply {
	if !c.holds(key, args[0]) {
		return number(0)
	}
	ms, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return refuse(errNotNumber)
	}
	if e := c.keys[key]; e.expiry != 0 {
		e.expiry = max(e.expiry, c.now/1000+ms)
		c.keys[key] = e
	}
	return number(1)
}

// release: token.
func release(c call, key string, args []string) redlock.Reply {
	if !c.holds(key, args[0]) {
		return number(0)
	}
	delete(c.keys, key)
	return number(1)
}

func who(c call, key string, _ []string) redlock.Reply {
	c.args = []string{key}
	value := get(c)
	switch {
	case value.Err != nil:
		return value
	case value.Nil:
		return list()
	}
	return list(value, pttl(c))
}

// holds tells whether key is the string token now.
func (c call) holds(key, token string) bool {
	e, ok := c.lookup(key, c.now)
	return ok && e.list == nil && e.text == token
}
