package script

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// opcodes are all of them, by their names in Lua.
var opcodes = map[string]Opcode{
	"ACQUIRE": Acquire, "ACQUIRE_ALSO": AcquireAlso, "JOIN": Join, "HAND_OVER": HandOver, "EXTEND": Extend, "RELEASE": Release,
	"WHO": Who, "LIST": List, "RAISE_COUNTER": RaiseCounter, "REPAIR": Repair, "REPAIR_SHARED": RepairShared, "FORCE": Force,
	"WAIT": Wait, "RESERVE": Reserve, "INTEND_WRITE": IntendWrite, "END_WAIT": EndWait, "READ_COUNTERS": ReadCounters,
}

var (
	opcodeRow    = regexp.MustCompile(`(?m)^--   ([a-z]) ([A-Z_]+)((?: (?:\[ttl\]|[a-z]+|\*))*)(?:  |$)`)
	opcodeValues = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*) -- [a-z]( [a-z])*$`)
)

// The table in the header of ballot.lua has each opcode of Go, with the letter that Go sends,
// the arguments that Go appends, and a counter where Go appends a record.
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
		var e Encoder
		before := e.Begin(redis.Command{}, "", 0)
		sent := e.Append(before, &Operation{Op: op, TTL: time.Second})
		counts := len(words) > 0 && words[len(words)-1] == "*"
		if counts {
			words = words[:len(words)-1]
		}
		if got := len(sent) - len(before); got != len(words) {
			t.Errorf("%s is sent with %d arguments, want %q as in the header", name, got, words)
		}
		if counts != op.Counts() || counts != (len(e.records) > 0) {
			t.Errorf("%s has a counter in the header: %v, in Go: %v", name, counts, op.Counts())
		}
	}
}

// The constants of ballot.lua are the letters that Go sends.
func TestLuaOpcodesAreThoseOfGo(t *testing.T) {
	found := 0
	for _, line := range opcodeValues.FindAllStringSubmatch(Ballot.Source, -1) {
		names, values := strings.Split(line[1], ", "), strings.Split(line[2], ", ")
		for i, name := range names {
			if op, known := opcodes[name]; !known || values[i] != strconv.Itoa(int(op)) {
				t.Errorf("%s = %s in ballot.lua, want %d", name, values[i], opcodes[name])
			}
			found++
		}
	}
	if found != len(opcodes) {
		t.Errorf("ballot.lua has %d opcodes, want %d", found, len(opcodes))
	}
}
