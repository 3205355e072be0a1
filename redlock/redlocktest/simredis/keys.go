package simredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// These are the names and values of the Lua scripts that tests use. ballot.lua explains them.
const (
	MembersOf = "\x00m"

	KindShared = "redlockd:shared"
	KindWriter = "redlockd:writer"
	KindTurn   = "redlockd:turn"
)

// IsKind reports whether a key's value says that a lock is shared. Other values with this prefix
// belong to foreign clients.
func IsKind(value string) bool {
	slots, ok := strings.CutPrefix(value, "redlockd:slots=")
	return value == KindShared || ok && slots != "" && strings.Trim(slots, "0123456789") == ""
}

// ForcedKey is the key of the note of a FORCE.
func ForcedKey(token string) string { return "redlockd:forced:" + sha1Hex(token) }

func sha1Hex(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
