package redlocktest

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// TestOneCallActsLikeSeveral: a lane combines the operations of many callers in one call. Each
// operation has the same reply and effect as in a call of its own at that instant.
func TestOneCallActsLikeSeveral(t *testing.T) {
	ballot := luaScript(t, "ballot")
	for seed := range uint64(effort.Rounds(60, 3000)) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 1)), ballot: ballot}
		alone, together := admittedState(ballot), admittedState(ballot)
		now := int64(1_800_000_000_000_000)
		for range 30 {
			now += int64(g.IntN(9)) * 33_001_000 // no key expires exactly then: expiries are multiples of 100 s
			limit := g.pick("9007199254740991", "9007199254740991", "1")
			var all []scriptOp
			var wants []redlock.Reply
			for range 1 + g.IntN(5) {
				ops := g.callerOperations()
				all = append(all, ops...)
				wants = append(wants, alone.Exec(&simredis.Client{}, now, scriptCall(ballot.SHA, "one", limit, ops...)).Array...)
			}
			command := scriptCall(ballot.SHA, "one", limit, all...)
			got := together.Exec(&simredis.Client{}, now, command)
			if want := (redlock.Reply{Array: wants}); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %q\ntogether   %s\none by one %s", seed, shorten(command), show(got), show(want))
			}
			if got, want := contents(&together, now), contents(&alone, now); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %q\ntogether   %v\none by one %v", seed, shorten(command), got, want)
			}
		}
	}
}

// callerOperations returns the operations of one caller. An operation of a waiter only follows an
// acquire.
func (g generator) callerOperations() []scriptOp {
	for {
		ops := g.operations()
		waits := ops[len(ops)-1].letter == "i"
		if !waits || strings.Contains("ash", ops[0].letter) && len(ops) > 1 {
			return ops
		}
	}
}

// admittedState returns a node that votes.
func admittedState(script script.Script) simredis.State {
	s := simredis.NewState("a", 0)
	s.Clients = func() []*simredis.Client { return nil }
	s.Exec(&simredis.Client{}, 0, redlock.Command{"SCRIPT", "LOAD", script.Source})
	s.Exec(&simredis.Client{}, 0, redlock.Command{"HSET", NodeKey, "epoch", "one", "aa", "7", "ab", "7"})
	return s
}

// contents returns all keys and their values.
func contents(s *simredis.State, now int64) map[string]any {
	all := map[string]any{}
	for _, key := range s.SortedKeys("*", now) {
		e := s.Keys[key]
		if e.Hash != nil {
			all[key] = e.Hash.Values
		} else {
			all[key] = e
		}
	}
	return all
}
