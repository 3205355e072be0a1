package simredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// scriptFunc is one of the Lua scripts of package redlock, written in Go.
type scriptFunc struct {
	Name string
	run  func(c call, keys, argv []string) redlock.Reply
}

var ScriptFuncs = map[string]func(c call, keys, argv []string) redlock.Reply{
	"ballot": ballot,
	"epoch":  rewriteNode,
	"rights": func(call, []string, []string) redlock.Reply { return redlock.Reply{} }, // the node denies no command
}

var ScriptsBySHA = indexScripts()

func indexScripts() map[string]scriptFunc {
	bySHA := map[string]scriptFunc{}
	for _, s := range script.Scripts() {
		bySHA[s.SHA] = scriptFunc{s.Name, ScriptFuncs[s.Name]}
	}
	return bySHA
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
	case !c.Scripts[sha]:
		return Refuse(ErrNoScript)
	}
	known := ScriptsBySHA[sha]
	if known.run == nil {
		return Failed("ERR redlocktest: script %s (%q) has no Go function: write one in script.go", sha, known.Name)
	}
	return known.run(c, c.args[2:2+n], c.args[2+n:])
}

// recordSize is the length of a counter's record for ballot.lua and epoch.lua: its field and 16
// digits.
const recordSize = 18

// record is the field of a counter and a number.
type record struct {
	field string
	value int64
}

func parseRecords(text string) ([]record, error) {
	all := make([]record, 0, len(text)/recordSize)
	for ; len(text) >= recordSize; text = text[recordSize:] {
		value, err := strconv.ParseInt(text[2:recordSize], 10, 64)
		if err != nil {
			return nil, simError("%q is no record", text[:recordSize])
		}
		all = append(all, record{text[:2], value})
	}
	if text != "" {
		return nil, simError("%q is too short for a record", text)
	}
	return all, nil
}

func simError(format string, args ...any) error {
	return redlock.ServerError("ERR redlocktest: " + fmt.Sprintf(format, args...))
}

// rewriteNode runs epoch.lua: it compares the epoch and the words, then writes.
func rewriteNode(c call, keys, argv []string) redlock.Reply {
	if len(keys) != 1 || len(argv) != 6 {
		return Refuse(simError("node: one key and six arguments: got %d keys and %d arguments", len(keys), len(argv)))
	}
	h, err := c.hash(keys[0])
	if err != nil {
		return Refuse(err)
	}
	if !c.Variant(CompareNothing) && (h.Values["epoch"] != argv[0] || argv[4] != "" && h.Values["words"] != argv[5]) {
		return Number(0)
	}
	records, err := parseRecords(argv[2])
	if err != nil {
		return Refuse(err)
	}
	ahead, err := strconv.ParseInt(argv[3], 10, 64)
	if err != nil && len(records) > 0 {
		return Refuse(errNotNumber)
	}
	if slices.ContainsFunc(records, func(r record) bool { return r.value > c.now+maxAhead }) {
		return Failed("FAR the fencing counters of other nodes are more than a year ahead of this node's clock: set that clock")
	}
	if h, err = c.hashToWrite(keys[0]); err != nil {
		return Refuse(err)
	}
	h.set("epoch", argv[1])
	if argv[4] != "" {
		h.set("words", argv[4])
	}
	h.raise(records, c.now+ahead, c.now+maxAhead)
	c.changed(keys[0])
	return Number(1)
}

// raise sets each counter to the largest of its value, its record and least. It ignores present
// values above most.
func (h *hash) raise(records []record, least, most int64) {
	h.grow(len(records))
	leastText := strconv.FormatInt(least, 10) // the new value of most counters
	for _, r := range records {
		count := r.value
		if known := h.Values[r.field]; known != "" {
			before, err := strconv.ParseInt(known, 10, 64)
			if err == nil && before <= most { // else another program wrote it
				count = max(count, before)
			}
		}
		text := leastText
		if count > least {
			text = strconv.FormatInt(count, 10)
		}
		h.set(r.field, text)
	}
}

// Variant is a deliberate mistake in a simulated node's scripts. A test plants it to show that the
// search finds it.
type Variant string

const (
	ReleaseBlindly Variant = "DEL without comparing the token"
	ExtendSets     Variant = "an extension sets a missing key"
	ExtendShortens Variant = "an extension may shorten the expiry"
	IgnoreNotAfter Variant = "a late acquire is executed"
	IgnoreEpoch    Variant = "the epoch is not compared before a vote"
	FenceBlindly   Variant = "a fencing token is written back although another token holds the lock"
	ForceBlindly   Variant = "FORCE deletes a lock that another token holds by now"
	ConfirmForced  Variant = "a token is confirmed although FORCE has noted it"
	ExchangeForced Variant = "a token is exchanged although FORCE has noted it"
	CompareNothing Variant = "an epoch is written without comparing the old one"
	HandOverFence  Variant = "a hand-over keeps the fencing token"
	CountHolders   Variant = "a semaphore counts its holders, and ignores their slots"
	MixKinds       Variant = "clients of different kinds share a lock"
	TokensFarAhead Variant = "fencing tokens are centuries ahead"
	HideKind       Variant = "readers leave the lock's key free for other clients"
)

// Variant reports whether the mistake was planted.
func (s *State) Variant(v Variant) bool { return s.Variants[v] }
