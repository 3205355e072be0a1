package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

// Script is one of the Lua scripts that run on the nodes. Each file says what
// its keys, arguments and replies are.
type Script struct {
	Name   string // "ballot"
	Source string
	SHA    string // what EVALSHA calls it by
}

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	Ballot = mustScript("rare", "ballot")
	Epoch  = mustScript("epoch")
	Rights = mustScript("rights")
)

// Scripts returns every script that a lane loads into its node.
func Scripts() []Script { return []Script{Ballot, Epoch, Rights} }

// mustScript makes a script of files, which is called as the last of them.
func mustScript(names ...string) Script {
	var source []byte
	for _, name := range names {
		part, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // embedded: cannot be missing from a binary that was built
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	return Script{Name: names[len(names)-1], Source: string(source), SHA: hex.EncodeToString(sum[:])}
}
