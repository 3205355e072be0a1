package redlocktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Target is a kind of node that the suite tests.
type Target interface {
	// Run calls body with a node that is up, has no keys, no scripts and no active faults. A
	// simulated node runs in a bubble of testing/synctest, where body must not start subtests.
	Run(t *testing.T, body func(t *testing.T, node Subject))

	// Lacks reports whether this kind of node does not have a feature. The suite skips the cases
	// that need the feature.
	Lacks(feature Feature) bool
}

// Subject is the node under test, with its faults.
type Subject interface {
	Node() redlock.Node
	Down() // connections break and dials are refused; keys may be lost
	Up()
	Hang() // accepts connections and bytes, and does nothing with them
	Resume()
}

// Feature is a feature that a Target may lack.
type Feature string

const (
	ClientID   Feature = "CLIENT ID"
	ClientKill Feature = "CLIENT KILL"
	ServerInfo Feature = "INFO with run_id and role"
	RedisWords Feature = "the error messages of Redis 7 for malformed commands and in scripts"
	Hanging    Feature = "a process that hangs"
	Messages   Feature = "PUBLISH and SUBSCRIBE"
)

// Conformance checks the replies of a node that package redlock relies on, for each command and
// script, and how the node fails.
func Conformance(t *testing.T, target Target) {
	for _, c := range slices.Concat(commandCases, scriptCases, scanCases, sharedCases, waitCases, connectionCases) {
		t.Run(c.name, func(t *testing.T) {
			for _, feature := range c.needs {
				if target.Lacks(feature) {
					t.Skipf("this kind of node lacks %s", feature)
				}
			}
			target.Run(t, func(t *testing.T, node Subject) { c.run(newProbe(t, node)) })
		})
	}
}

type conformanceCase struct {
	name  string
	needs []Feature
	run   func(*probe)
}

// patience limits each wait for an event that must happen at once.
const patience = 10 * time.Second

// probe is one running case: a node and a connection to it.
type probe struct {
	testing.TB
	node Subject
	conn redlock.Conn
}

func newProbe(t *testing.T, node Subject) *probe {
	p := &probe{TB: t, node: node}
	p.conn = p.dial()
	return p
}

// dial makes another connection. It is closed at the end of the case.
func (p *probe) dial() redlock.Conn {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	conn, err := p.node.Node().Dial(ctx)
	if err != nil {
		p.Fatalf("dial: %v", err)
	}
	p.Cleanup(conn.Close)
	return conn
}

// on returns the probe with another connection.
func (p *probe) on(conn redlock.Conn) *probe { return &probe{p.TB, p.node, conn} }

// group sends commands as one group and returns the replies.
func (p *probe) group(commands ...redlock.Command) []redlock.Reply {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	replies := make([]redlock.Reply, len(commands))
	if err := p.conn.Do(ctx, commands, replies); err != nil {
		p.Fatalf("%q: the connection failed: %v", commands, err)
	}
	return replies
}

func (p *probe) do(command ...string) redlock.Reply {
	p.Helper()
	return p.group(command)[0]
}

// expect sends a command and compares the reply.
func (p *probe) expect(want redlock.Reply, command ...string) {
	p.Helper()
	if got := p.do(command...); !same(got, want) {
		p.Errorf("%q\n got %s\nwant %s", shorten(command), show(got), show(want))
	}
}

// expectBroken checks that the connection fails at once.
func (p *probe) expectBroken() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	var reply [1]redlock.Reply
	err := p.conn.Do(ctx, []redlock.Command{{"PING"}}, reply[:])
	if err == nil || ctx.Err() != nil {
		p.Errorf("PING on a broken connection: got %s and error %v, want an error at once", show(reply[0]), err)
	}
}

// expectTTL checks that the key expires after least and not after most.
func (p *probe) expectTTL(key string, least, most time.Duration) {
	p.Helper()
	got := time.Duration(p.do("PTTL", key).Int) * time.Millisecond
	if got < least || got > most {
		p.Errorf("PTTL %s: got %v, want %v to %v", key, got, least, most)
	}
}

// eventually polls until done returns true, in real or in fake time.
func (p *probe) eventually(what string, done func() bool) {
	p.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	giveUp := time.NewTimer(patience)
	defer giveUp.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-giveUp.C:
			p.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// loadScripts loads all scripts, as a lane does on a new connection.
func (p *probe) loadScripts() {
	p.Helper()
	for _, script := range script.Scripts() {
		p.expect(text(script.SHA), "SCRIPT", "LOAD", script.Source)
	}
}

// luaScript returns the script with this name.
func luaScript(tb testing.TB, name string) script.Script {
	tb.Helper()
	scripts := script.Scripts()
	i := slices.IndexFunc(scripts, func(s script.Script) bool { return s.Name == name })
	if i < 0 {
		tb.Fatalf("there is no script %q", name)
	}
	return scripts[i]
}

// same compares replies. If want has an error of one word, its kind, same compares only that word.
func same(got, want redlock.Reply) bool {
	if got.Err != nil || want.Err != nil {
		return got.Err != nil && want.Err != nil && strings.HasPrefix(got.Err.Error()+" ", want.Err.Error()+" ")
	}
	return got.Nil == want.Nil && got.Int == want.Int && got.Str == want.Str &&
		slices.EqualFunc(got.Array, want.Array, same)
}

func show(r redlock.Reply) string {
	switch {
	case r.Err != nil:
		return "error " + r.Err.Error()
	case r.Nil:
		return "nil"
	case r.Str != "":
		return fmt.Sprintf("%q", r.Str)
	case r.Int != 0:
		return fmt.Sprintf("integer %d", r.Int)
	case r.Array == nil:
		return `integer 0 or ""`
	}
	items := make([]string, len(r.Array))
	for i, item := range r.Array {
		items[i] = show(item)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// shorten keeps a script's source out of a test's output.
func shorten(command []string) []string {
	short := slices.Clone(command)
	for i, word := range short {
		if len(word) > 60 {
			short[i] = word[:60] + "…"
		}
	}
	return short
}
