package simredis

import (
	"slices"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"

	"github.com/redlockd/redlockd/redlock"
)

// luaState runs scripts as Redis does. Several nodes may use it, one after the other.
type luaState struct {
	*lua.LState
	call call     // the EVALSHA that runs
	keys []string // that the EVALSHA declares
	args []string // of the command that runs, to be used again
}

// luaStates has states that are not in use: a new one costs more than most scripts. (A sync.Pool
// forgets a part of them, with the race detector at random.)
var luaStates struct {
	sync.Mutex
	idle []*luaState
}

func takeLuaState() *luaState {
	luaStates.Lock()
	defer luaStates.Unlock()
	last := len(luaStates.idle) - 1
	if last < 0 {
		return newLuaState()
	}
	l := luaStates.idle[last]
	luaStates.idle = luaStates.idle[:last]
	return l
}

func returnLuaState(l *luaState) {
	luaStates.Lock()
	defer luaStates.Unlock()
	luaStates.idle = append(luaStates.idle, l)
}

func newLuaState() *luaState {
	l := &luaState{LState: lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 16 << 10, RegistryMaxSize: 1 << 20})}
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":          func(*lua.LState) int { return l.redisCall(true) },
		"pcall":         func(*lua.LState) int { return l.redisCall(false) },
		"error_reply":   func(*lua.LState) int { return l.errorReply() },
		"status_reply":  func(*lua.LState) int { return l.push(l.single("ok", l.CheckString(1))) },
		"sha1hex":       func(*lua.LState) int { return l.push(lua.LString(sha1Hex(l.CheckString(1)))) },
		"acl_check_cmd": func(*lua.LState) int { return l.aclCheck() },
	}))
	strict := l.NewTable() // scripts must not use globals of their own
	l.SetField(strict, "__newindex", l.NewFunction(func(*lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	l.SetField(strict, "__index", l.NewFunction(func(*lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.ToString(2))
		return 0
	}))
	l.SetMetatable(l.G.Global, strict)
	return l
}

// runScript runs a script in the time of the EVALSHA.
func runScript(c call, proto *lua.FunctionProto, keys, argv []string) redlock.Reply {
	l := takeLuaState()
	defer returnLuaState(l)
	l.call, l.keys = c, keys
	l.G.Global.RawSetString("KEYS", l.strings(keys))
	l.G.Global.RawSetString("ARGV", l.strings(argv))
	l.Push(l.NewFunctionFromProto(proto))
	err := l.PCall(0, 1, nil)
	l.call, l.keys = call{}, nil
	if err != nil {
		return scriptError(err)
	}
	reply := fromLua(l.Get(-1))
	l.Pop(1)
	return reply
}

// scriptError returns the reply for a script that failed. An error of redis.call is the reply itself.
func scriptError(err error) redlock.Reply {
	failed, is := err.(*lua.ApiError)
	if !is {
		return Failed("ERR %s", oneLine(err))
	}
	if table, is := failed.Object.(*lua.LTable); is {
		if text, is := table.RawGetString("err").(lua.LString); is {
			return Refuse(redlock.ServerError(text))
		}
	}
	return Failed("ERR %s", failed.Object.String())
}

// redisCall executes a command. If it fails, redis.call ends the script, and redis.pcall returns the
// error.
func (l *luaState) redisCall(raises bool) int {
	known, reply := l.execute()
	if reply.Err != nil && raises {
		l.Error(l.single("err", reply.Err.Error()), 0)
	}
	return l.push(l.toLua(known, reply))
}

func (l *luaState) execute() (*command, redlock.Reply) {
	l.call.ScriptCommands++
	words := l.args[:0]
	for i := range l.GetTop() {
		switch arg := l.Get(i + 1).(type) {
		case lua.LString:
			words = append(words, string(arg))
		case lua.LNumber:
			words = append(words, formatFloat(float64(arg)))
		default:
			return nil, Failed("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	l.args = words
	if len(words) == 0 {
		return nil, Failed("ERR Please specify at least one argument for this redis.call() call")
	}
	known := find(words)
	switch {
	case known == nil:
		return nil, Failed("ERR Unknown Redis command called from script")
	case !known.takes(len(words)):
		return nil, Failed("ERR Wrong number of args calling Redis command from script")
	case known.flags&noScript != 0:
		return nil, Failed("ERR This Redis command is not allowed from script")
	}
	c := l.call
	if err := c.mayWrite(); err != nil && known.flags&writes != 0 {
		return nil, Refuse(err)
	}
	c.args = words[known.words:]
	if c.StrictKeys && !l.declares(known, c.args) {
		return nil, Failed("ERR script tried accessing undeclared key")
	}
	return known, known.run(c)
}

// declares reports whether the EVALSHA that runs has declared all keys of a command.
func (l *luaState) declares(known *command, args []string) bool {
	switch known.name {
	case "TIME", "PUBLISH", "PING", "INFO":
		return true
	case "DEL", "EXISTS", "MGET":
		return !slices.ContainsFunc(args, func(key string) bool { return !slices.Contains(l.keys, key) })
	}
	return slices.Contains(l.keys, args[0])
}

// errorReply executes redis.error_reply. As in Redis 7, a single word is not the kind of the error.
func (l *luaState) errorReply() int {
	text := strings.TrimPrefix(l.CheckString(1), "-")
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	return l.push(l.single("err", text))
}

// aclCheck executes redis.acl_check_cmd for the user default.
func (l *luaState) aclCheck() int {
	known := find(redlock.Command{l.CheckString(1)})
	if known == nil {
		l.RaiseError("ERR Invalid command passed to redis.acl_check_cmd()")
	}
	return l.push(lua.LBool(known.name != l.call.Denied))
}

func (l *luaState) push(value lua.LValue) int {
	l.Push(value)
	return 1
}

// single returns the table for an error or a status.
func (l *luaState) single(field, text string) *lua.LTable {
	table := l.NewTable()
	table.RawSetString(field, lua.LString(text))
	return table
}

func (l *luaState) strings(all []string) *lua.LTable {
	table := l.CreateTable(len(all), 0)
	for _, text := range all {
		table.Append(lua.LString(text))
	}
	return table
}

// toLua returns the reply to a command as a script sees it. (The reply itself does not tell 0 from
// an empty string. The elements of an array are strings.)
func (l *luaState) toLua(known *command, reply redlock.Reply) lua.LValue {
	switch {
	case reply.Err != nil:
		return l.single("err", reply.Err.Error())
	case reply.Nil:
		return lua.LFalse
	case reply.Array != nil:
		table := l.CreateTable(len(reply.Array), 0)
		for _, item := range reply.Array {
			table.Append(l.toLua(nil, item))
		}
		return table
	case known != nil && known.flags&status != 0:
		return l.single("ok", reply.Str)
	case known != nil && known.flags&number != 0:
		return lua.LNumber(reply.Int)
	}
	return lua.LString(reply.Str)
}

// fromLua returns the value of a script as a reply: numbers without fraction, tables up to the
// first nil.
func fromLua(value lua.LValue) redlock.Reply {
	switch value := value.(type) {
	case lua.LString:
		return Text(string(value))
	case lua.LNumber:
		return Number(int64(value))
	case lua.LBool:
		if value {
			return Number(1)
		}
	case *lua.LTable:
		if text, is := value.RawGetString("err").(lua.LString); is {
			return Refuse(redlock.ServerError(text))
		}
		if text, is := value.RawGetString("ok").(lua.LString); is {
			return Text(string(text))
		}
		reply := redlock.Reply{Array: make([]redlock.Reply, 0, value.Len())}
		for i := 1; ; i++ {
			item := value.RawGetInt(i)
			if item == lua.LNil {
				return reply
			}
			reply.Array = append(reply.Array, fromLua(item))
		}
	}
	return Null()
}
