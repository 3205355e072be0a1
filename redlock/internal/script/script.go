package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

// Script is one of the Lua scripts that run on the nodes. Each file documents its keys, arguments
// and replies.
type Script struct {
	Name   string // "ballot"
	Source string
	SHA    string // its name for EVALSHA
}

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	Ballot = mustScript("queue", "share", "admin", "rare", "ballot")
	Epoch  = mustScript("epoch")
	Rights = mustScript("rights")
)

// Scripts returns every script that a lane loads into its node.
func Scripts() []Script { return []Script{Ballot, Epoch, Rights} }

// mustScript makes a script of files. It has the name of the last one.
func mustScript(names ...string) Script {
	var source []byte
	for _, name := range names {
		part, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // embedded, so it cannot be missing
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	return Script{Name: names[len(names)-1], Source: string(source), SHA: hex.EncodeToString(sum[:])}
}
