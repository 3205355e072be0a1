package script

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// opcodes has each opcode under its name in Lua.
var opcodes = map[string]Opcode{
	"ACQUIRE": Acquire, "ACQUIRE_ALSO": AcquireAlso, "JOIN": Join, "HAND_OVER": HandOver, "EXTEND": Extend, "DOWNGRADE": Downgrade, "EXCHANGE": Exchange, "CONFIRM": Confirm, "RELEASE": Release,
	"WHO": Who, "RAISE_COUNTER": RaiseCounter, "REPAIR": Repair, "REPAIR_SHARED": RepairShared, "NOTE_FORCED": NoteForced, "FORCE": Force,
	"ENTER": Enter, "REENTER": Reenter, "END_WAIT": EndWait, "READ_COUNTERS": ReadCounters,
	"SCAN": Scan, "DESCRIBE": Describe,
}

var (
	opcodeRow      = regexp.MustCompile(`(?m)^--   ([a-z]) ([A-Z_]+)((?: (?:[a-z]+|\*))*)(?:  |$)`)
	opcodeValues   = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*) -- [a-z]( [a-z])*$`)
	rareOperations = regexp.MustCompile(`(?s)\boperations = \{(.*?)\}`) // in rare.lua, share.lua and admin.lua
	arguments      = regexp.MustCompile(`\n  local arguments = \{(.*)\}`)
	counted        = regexp.MustCompile(`\n  local counted = \{(.*)\}`)
	luaField       = regexp.MustCompile(`([a-z]) = (\w+)`)
)

// The table in the header of ballot.lua has each opcode of Go, with the letter that Go sends, the
// arguments that Go appends, and a counter if Go appends a record.
func TestHeaderListsOpcodes(t *testing.T) {
	rows := opcodeRow.FindAllStringSubmatch(Ballot.Source, -1)
	if len(rows) != len(opcodes) {
		t.Errorf("the header has %d opcodes, want %d", len(rows), len(opcodes))
	}
	for _, row := range rows {
		letter, name, words := row[1], row[2], strings.Fields(row[3])
		op, known := opcodes[name]
		if !known || string(rune(op)) != letter {
			t.Errorf("%s has the letter %s in the header, want %q", name, letter, rune(op))
			continue
		}
		counts := len(words) > 0 && words[len(words)-1] == "*"
		if counts {
			words = words[:len(words)-1]
		}
		sent, record := sentFor(op)
		if sent != len(words) {
			t.Errorf("%s is sent with %d arguments, want %q as in the header", name, sent, words)
		}
		if counts != op.Counts() || counts != record {
			t.Errorf("%s has a counter in the header: %v, in Go: %v", name, counts, op.Counts())
		}
	}
}

// sentFor returns how many arguments Go sends for an operation, and whether it sends a record.
func sentFor(op Opcode) (arguments int, record bool) {
	var e Encoder
	before := e.Begin(redis.Command{}, "", 0)
	after := e.Append(before, &Operation{Op: op, TTL: time.Second})
	return len(after) - len(before), len(e.records) > 0
}

// For each opcode that Go sends, ballot.lua has a constant or another file a function, with the same
// letter and name.
func TestLuaHasEachOpcode(t *testing.T) {
	found := map[string]string{} // letters by name
	for _, line := range opcodeValues.FindAllStringSubmatch(Ballot.Source, -1) {
		values := strings.Split(line[2], ", ")
		for i, name := range strings.Split(line[1], ", ") {
			value, _ := strconv.Atoi(values[i])
			found[name] = string(rune(value))
		}
	}
	for letter, function := range luaTable(t, rareOperations) {
		found[constantName(function)] = letter
	}
	for name, op := range opcodes {
		if found[name] != string(rune(op)) {
			t.Errorf("%s has the letter %q in Lua, want %q", name, found[name], rune(op))
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Errorf("Lua has opcodes that Go does not have: %v", found)
	}
}

// constantName returns READ_COUNTERS for readCounters.
func constantName(function string) string {
	upper := regexp.MustCompile(`[A-Z]`).ReplaceAllString(function, "_$0")
	return strings.ToUpper(upper)
}

// The tables in rare.lua have as many arguments for each operation as Go sends, and a record if
// Go sends one.
func TestLuaCountsArguments(t *testing.T) {
	arguments, counted := luaTable(t, arguments), luaTable(t, counted)
	for name, op := range opcodes {
		letter := string(rune(op))
		sent, record := sentFor(op)
		if arguments[letter] != strconv.Itoa(sent) {
			t.Errorf("%s has %s arguments in rare.lua, want %d as in Go", name, arguments[letter], sent)
		}
		if (counted[letter] == "1") != record {
			t.Errorf("%s has a record in rare.lua: %q, in Go: %v", name, counted[letter], record)
		}
	}
	if len(arguments) != len(opcodes) {
		t.Errorf("rare.lua has the arguments of %d operations, want %d", len(arguments), len(opcodes))
	}
}

// luaTable returns the fields of a table in the Lua source, or of several.
func luaTable(t *testing.T, table *regexp.Regexp) map[string]string {
	t.Helper()
	sources := table.FindAllStringSubmatch(Ballot.Source, -1)
	if sources == nil {
		t.Fatalf("no %s in the Lua source", table)
	}
	fields := map[string]string{}
	for _, source := range sources {
		for _, field := range luaField.FindAllStringSubmatch(source[1], -1) {
			if fields[field[1]] != "" {
				t.Errorf("%s is there twice", field[0])
			}
			fields[field[1]] = field[2]
		}
	}
	return fields
}
