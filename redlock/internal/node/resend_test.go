package node

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// lostScripts is a node that answers its commands, counted from 0, as answer returns. It loads
// scripts, and records what was sent.
type lostScripts struct {
	answer func(nth int) error // nil: the node executes the command
	calls  int
	sent   []string // "load", or the token of a command's first operation

	groups [][]redis.Command // sent and not received
}

func (c *lostScripts) Send(_ context.Context, group []redis.Command) error {
	c.groups = append(c.groups, group)
	return nil
}

func (c *lostScripts) Receive(ctx context.Context, replies []redis.Reply) error {
	group := c.groups[0]
	c.groups = c.groups[1:]
	return c.Do(ctx, group, replies)
}

func (c *lostScripts) Do(_ context.Context, commands []redis.Command, replies []redis.Reply) error {
	for i, command := range commands {
		switch {
		case command[0] == "SCRIPT":
			sum := sha1.Sum([]byte(command[2]))
			replies[i] = redis.Reply{Str: hex.EncodeToString(sum[:])}
			if !slices.Contains(c.sent[max(len(c.sent)-1, 0):], "load") {
				c.sent = append(c.sent, "load")
			}
		case command[1] == script.Rights.SHA:
			replies[i] = redis.Reply{}
		default:
			replies[i] = c.execute(command)
		}
	}
	return nil
}

// firstToken returns the token of the first operation in a command.
func firstToken(command redis.Command) string {
	keys, _ := strconv.Atoi(command[2])
	return command[3+keys+4]
}

func (c *lostScripts) execute(command redis.Command) redis.Reply {
	keys, _ := strconv.Atoi(command[2])
	c.sent = append(c.sent, firstToken(command))
	err := c.answer(c.calls)
	c.calls++
	if err != nil {
		return redis.Reply{Err: err}
	}
	reply := redis.Reply{}
	for range keys - 1 {
		reply.Array = append(reply.Array, redis.Reply{Int: 1})
	}
	return reply
}

func (*lostScripts) Close() {}

// outcomes are the results of a test's calls.
type outcomes []string

type namedVoter struct {
	all  *outcomes
	name string
}

func (v namedVoter) Vote(_ int, _ []redis.Reply, failure *Error) {
	outcome := v.name + " done"
	if failure != nil {
		outcome = v.name + " " + string(failure.Failure)
	}
	*v.all = append(*v.all, outcome)
}

// sendTwo sends a repair in one command, and another repair with a release in a second one.
func sendTwo(t *testing.T, conn redis.Conn) (got outcomes) {
	t.Helper()
	now := time.Hour
	l := NewLane(Options{
		Hooks: &NoHooks, NodeTimeout: 50 * time.Millisecond, Clock: func() time.Duration { return now }, Waiters: &Waiters{},
		Admission: admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, 5), Quorum: quorum.Majority(5)}),
	})
	operation := func(op script.Opcode, token string) []script.Operation {
		return []script.Operation{{Op: op, Key: "x", Token: token, TTL: time.Second}}
	}
	placed := &NodeSet{}
	placed.Add(0)
	group := []Call{
		{Op: "repair", Ops: operation(script.Repair, "t"), NotAfter: now + 20*time.Millisecond, Placed: placed, Voter: namedVoter{&got, "first"}},
		{Op: "repair", Ops: operation(script.Repair, "u"), NotAfter: now + 50*time.Millisecond, Placed: placed, Voter: namedVoter{&got, "second"}},
		{Op: "release", Ops: operation(script.Release, "t"), Until: now + time.Second, Placed: placed, Voter: namedVoter{&got, "release"}},
	}
	if err := l.send(conn, group); err != nil {
		t.Fatal(err)
	}
	return got
}

// A node without scripts gets them, and then the same calls once more, in their order.
func TestResendAfterScriptFlush(t *testing.T) {
	noScript := redis.ServerError("NOSCRIPT No matching script.")
	conn := &lostScripts{answer: func(nth int) error {
		if nth < 2 {
			return noScript
		}
		return nil
	}}
	got := sendTwo(t, conn)
	if want := (outcomes{"first done", "second done", "release done"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"t", "u", "load", "t", "u"}; !slices.Equal(conn.sent, want) {
		t.Errorf("sent %q, want %q", conn.sent, want)
	}
}

// If the node executed a call's release after a command that it did not execute, that command is
// not resent, or the lock would stay. Guards executedSpans.
func TestResendNeverFollowsItsRelease(t *testing.T) {
	conn := &lostScripts{answer: func(nth int) error {
		if nth == 0 {
			return redis.ServerError("NOSCRIPT No matching script.")
		}
		return nil
	}}
	got := sendTwo(t, conn)
	if want := (outcomes{"first error", "second done", "release done"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"t", "u"}; !slices.Equal(conn.sent, want) {
		t.Errorf("sent %q, want %q", conn.sent, want)
	}
}

// If scripts are flushed repeatedly, the calls fail after one resend.
func TestResendHappensOnce(t *testing.T) {
	conn := &lostScripts{answer: func(int) error { return redis.ServerError("NOSCRIPT No matching script.") }}
	got := sendTwo(t, conn)
	if want := (outcomes{"first error", "second error", "release error"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"t", "u", "load", "t", "u"}; !slices.Equal(conn.sent, want) {
		t.Errorf("sent %q, want %q", conn.sent, want)
	}
}

// notExecuted has each error that means "not executed". Only NOSCRIPT makes the lane resend
// within the request.
func TestNotExecuted(t *testing.T) {
	for kind, resent := range map[string]bool{"NOSCRIPT": true, "LOADING": false, "BUSY": false, "READONLY": false, "MASTERDOWN": false, "OOM": false} {
		conn := &lostScripts{answer: func(nth int) error {
			if nth < 2 {
				return redis.ServerError(fmt.Sprintf("%s for a test", kind))
			}
			return nil
		}}
		got := sendTwo(t, conn)
		want, sent := outcomes{"first error", "second error", "release error"}, []string{"t", "u"}
		if resent {
			want, sent = outcomes{"first done", "second done", "release done"}, []string{"t", "u", "load", "t", "u"}
		}
		if decided, known := notExecuted[kind]; !known || decided != resent || !slices.Equal(got, want) || !slices.Equal(conn.sent, sent) {
			t.Errorf("%s: got %q, sent %q; want %q, sent %q", kind, got, conn.sent, want, sent)
		}
	}
}
