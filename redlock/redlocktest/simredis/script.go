package simredis

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// ScriptsBySHA has the scripts of package redlock.
var ScriptsBySHA = indexScripts()

func indexScripts() map[string]script.Script {
	bySHA := map[string]script.Script{}
	for _, s := range script.Scripts() {
		bySHA[s.SHA] = s
	}
	return bySHA
}

// scriptLoad compiles a script.
func scriptLoad(c call) redlock.Reply {
	source := c.args[0]
	sha := sha1Hex(source)
	if _, err := compile(source); err != nil {
		return Failed("ERR Error compiling script (new function): %s", oneLine(err))
	}
	c.Scripts[sha] = source
	return Text(sha)
}

// scriptFlush executes SCRIPT FLUSH.
func scriptFlush(c call) redlock.Reply {
	if len(c.args) > 1 || len(c.args) == 1 && !isSyncWord(c.args[0]) {
		return Failed("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	clear(c.Scripts)
	return Text("OK")
}

// evalSHA executes EVALSHA sha numkeys [key …] [arg …].
func evalSHA(c call) redlock.Reply {
	sha := strings.ToLower(c.args[0])
	n, err := strconv.Atoi(c.args[1])
	switch {
	case len(sha) != 40: // checked first, as in Redis
		return Refuse(ErrNoScript)
	case err != nil:
		return Refuse(errNotNumber)
	case n > len(c.args)-2:
		return Failed("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return Failed("ERR Number of keys can't be negative")
	}
	source, loaded := c.Scripts[sha]
	if !loaded {
		return Refuse(ErrNoScript)
	}
	proto := c.protos[sha]
	if proto == nil {
		if planted, is := c.planted[sha]; is {
			source = planted
		}
		if proto, err = compile(source); err != nil {
			return Failed("ERR Error compiling script (new function): %s", oneLine(err))
		}
		c.protos[sha] = proto
	}
	return runScript(c, proto, c.args[2:2+n], c.args[2+n:])
}

// compiled has each script that was compiled, by its source. All simulated nodes share them.
var compiled sync.Map

func compile(source string) (*lua.FunctionProto, error) {
	if proto, ok := compiled.Load(source); ok {
		return proto.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return nil, err
	}
	compiled.Store(source, proto)
	return proto, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func simError(format string, args ...any) error {
	return redlock.ServerError("ERR redlocktest: " + fmt.Sprintf(format, args...))
}
