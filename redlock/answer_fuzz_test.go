package redlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis/redistest"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// fuzzedCalls returns one call of each kind that a group may have, and the ballots of all.
func fuzzedCalls(system quorum.System) (calls []node.Call, ballots []*ballot.Ballot) {
	add := func(op string, width int, yes func(*Reply) bool, ops ...script.Operation) {
		b := ballot.New(op, 5, system, yes)
		b.Width = width
		calls, ballots = append(calls, node.Call{Op: op, Ops: ops, Voter: b, Placed: &node.NodeSet{}}), append(ballots, b)
	}
	add("acquire", 1, script.IsFencedGrant, script.Operation{Op: script.Acquire, Key: "x", Token: "t"}, script.Operation{Op: script.Enter, Key: "x", Token: "m"})
	add("acquire", 2, script.IsFencedGrant, script.Operation{Op: script.AcquireAlso, Key: "x", Token: "t"}, script.Operation{Op: script.Join, Key: "y", Token: "t"})
	add("release", 1, ballot.IsGrant, script.Operation{Op: script.Release, Key: "x", Token: "t"})
	add("who", 1, func(reply *Reply) bool { return len(reply.Array) == 0 }, script.Operation{Op: script.Who, Key: "x"})
	add("fence", 1, ballot.IsGrant, script.Operation{Op: script.RaiseCounter, Key: "x", Token: "t"})
	add("counters", 1, func(reply *Reply) bool { return len(reply.Array) > 0 }, script.Operation{Op: script.ReadCounters, Key: script.NodeKey})
	released := ballot.New("release", 5, system, ballot.IsGrant)
	acquired := ballot.New("acquire", 5, system, script.IsFencedGrant)
	calls = append(calls, node.Call{Op: "acquire", Ops: []script.Operation{{Op: script.HandOver, Key: "x", OldToken: "o", Token: "t"}},
		Voter: &handOverVoter{acquired: acquired, released: released}, Placed: &node.NodeSet{}})
	return calls, append(ballots, released, acquired)
}

// FuzzAnswers makes a node answer a group of calls, a look and a message with any
// bytes. They go through the connection, the checks and the ballots, up to the error that names the
// holder. What passes the checks is in range.
func FuzzAnswers(f *testing.F) {
	for _, sample := range redistest.Samples {
		if len(sample.Text) < 1000 {
			f.Add([]byte(sample.Text))
		}
	}
	looks := "*2\r\n" + bulk("1795247588") + bulk("5") + bulk("admitted:1234:word:30000:5-abcdef:a") + bulk("redis_version:7.0.15\r\nrole:master\r\nrun_id:123") +
		"%1\r\n+appendfsync\r\n+always\r\n"
	held, fields := "*4\r\n"+bulk(script.KindShared)+":900\r\n+t\r\n:900\r\n", "*4\r\n+aa\r\n+1795247588000000\r\n+epoch\r\n+x\r\n"
	place := "*5\r\n" + bulk(script.KindSlots+"3") + ":900\r\n" + bulk("1 t") + ":900\r\n:2\r\n"
	for _, ballots := range []string{
		":1795247588000000\r\n:1\r\n:-7\r\n:-7\r\n:1\r\n" + held + ":1\r\n" + fields + "*1\r\n:5\r\n",
		held + ":1\r\n" + place + place + ":0\r\n*0\r\n:0\r\n" + fields + place,
		"*2\r\n+t\r\n:-1\r\n:1\r\n-LATE x\r\n-LATE x\r\n-EPOCH x\r\n*2\r\n+t\r\n:9223372036854775807\r\n:0\r\n*0\r\n-OOM x\r\n",
	} {
		f.Add([]byte("*9\r\n" + ballots + looks + "+turn\r\n"))
	}
	f.Fuzz(func(t *testing.T, answers []byte) {
		f := newFleet(&Options{Nodes: make([]Node, 5), hooks: &noHooks, Clock: func() time.Duration { return time.Hour }})
		l := f.lanes[0]
		for i := range f.lanes {
			f.admission.NoteClock(i, admission.ClockSample{Low: 1795247588 * time.Second, Known: true})
		}
		calls, ballots := fuzzedCalls(f.system)
		const looks = 4
		replies, err := answered(t, answers, 1+looks+1)
		if err != nil {
			return // the connection has ended, and no answer was used
		}
		if l.TakeAnswers(calls, &replies[0]) == nil {
			checkBallots(t, ballots)
		}
		if s, err := l.TakeLook(replies[1 : 1+looks]); err == nil {
			_ = s.Info.Refusal()
			_, _ = admission.ParseEpoch(s.Epoch)
			if s.Clock.Known && (s.Clock.Low > s.Clock.High || s.Clock.Low < -time.Hour) {
				t.Errorf("the node's clock is between %v and %v", s.Clock.Low, s.Clock.High)
			}
		}
		f.waiters.Join("x", "", time.Millisecond, "mark", f.system)
		l.TakeMessage(replies[1+looks].Str)
	})
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

func checkBallots(t *testing.T, ballots []*ballot.Ballot) {
	for _, b := range ballots {
		e := heldError("x", b)
		_ = e.Error()
		if e.TTL < 0 {
			t.Errorf("held for %v", e.TTL)
		}
		for _, h := range countTokens(b.Answers) {
			if h.TTL <= 0 {
				t.Errorf("%s lasts %v", h.token, h.TTL)
			}
		}
		for i := range b.Answers {
			if a := &b.Answers[i]; a.Verdict == ballot.Granted && b.Op == "acquire" && (!script.IsFence(a.Fence) || a.Fence > 1<<51) {
				t.Errorf("granted with the fencing token %d", a.Fence)
			}
			if a := &b.Answers[i]; a.Verdict == ballot.Granted && b.Op == "counters" {
				readHash(new(admission.Counters), a.Shown.Array)
			}
		}
	}
}

// hello is the answer of a Redis to the log-in.
const hello = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"

// errScriptOver is the read error at the end of the answers.
var errScriptOver = errors.New("the script is over")

// answered returns what a connection reads from these bytes, as the answer to this number of
// commands.
func answered(t testing.TB, answers []byte, commands int) ([]Reply, error) {
	in := io.MultiReader(strings.NewReader(hello), bytes.NewReader(answers), failing{})
	conn, err := RedisNode(NodeOptions{Name: "a", Address: "unix:/nowhere",
		Dial: func(context.Context) (net.Conn, error) { return redistest.Scripted{Reader: in}, nil }}).Dial(t.Context())
	if err != nil {
		t.Fatal(err) // the log-in must succeed
	}
	defer conn.Close()
	group, replies := make([]Command, commands), make([]Reply, commands)
	for i := range group {
		group[i] = Command{"PING"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return replies, conn.Do(ctx, group, replies)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errScriptOver }
