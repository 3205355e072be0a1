package redlock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

// Script is one of the Lua scripts that run on the nodes. Each file says what
// its keys, arguments and replies are.
type Script struct {
	Name   string // "acquire"
	Source string
	SHA    string // what EVALSHA calls it by
}

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	ballotScript = mustScript("ballot")
	nodeScript   = mustScript("node")
)

// Scripts returns every script that a lane loads into its node.
func Scripts() []Script { return []Script{ballotScript, nodeScript} }

func mustScript(name string) Script {
	source, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: cannot be missing from a binary that was built
	}
	sum := sha1.Sum(source)
	return Script{Name: name, Source: string(source), SHA: hex.EncodeToString(sum[:])}
}
