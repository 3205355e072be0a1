package redlocktest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

var trackingCases = []conformanceCase{
	{"a listener is notified of each kind of change", []Feature{Tracking}, checkNotified},
	{"a listener is notified of changes by scripts", []Feature{Tracking}, checkNotifiedOfScripts},
	{"a listener is notified once", []Feature{Tracking}, checkNotifiedOnce},
	{"a listener is notified of keys that were read after CLIENT CACHING YES", []Feature{Tracking}, checkNotifiedOfCached},
	{"NOLOOP", []Feature{Tracking}, checkNoLoop},
	{"a listener is notified of an expiry", []Feature{Tracking}, checkNotifiedOfExpiry},
	{"a listener is notified of FLUSHALL", []Feature{Tracking}, checkNotifiedOfFlush},
	{"CLIENT TRACKING OFF", []Feature{Tracking}, checkTrackingOff},
	{"a refused client is woken", []Feature{Tracking}, checkWoken},
	{"a listener that is closed", []Feature{Tracking}, checkListenerClosed},
	{"a listener that is killed", []Feature{Tracking, ClientKill}, checkListenerKilled},
	{"a listener of a node that goes down", []Feature{Tracking}, checkListenerDown},
	{"wrong requests for tracking", []Feature{Tracking, RedisWords}, checkTrackingErrors},
}

// keyListener is a listener and what it received: keys, or AllKeys.
type keyListener struct {
	redlock.Listener
	keys chan string
}

// listen makes a listener. It is closed at the end of the case.
func (p *probe) listen() *keyListener {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	e := &keyListener{keys: make(chan string, 1000)}
	listener, err := p.node.Node().Listen(ctx, func(keys []string) {
		if keys == nil {
			keys = []string{simredis.AllKeys}
		}
		for _, key := range keys {
			e.keys <- key
		}
	})
	if err != nil {
		p.Fatalf("listen: %v", err)
	}
	p.Cleanup(listener.Close)
	e.Listener = listener
	return e
}

// track returns a connection whose tracking is redirected to the listener.
func (p *probe) track(e *keyListener, options ...string) *probe {
	p.Helper()
	reader := p.on(p.dial())
	on := []string{"CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(e.ID(), 10), "OPTIN"}
	reader.expect(text("OK"), append(on, options...)...)
	return reader
}

// arm reads keys, so that the listener is notified when they change.
func (p *probe) arm(keys ...string) {
	p.Helper()
	got := p.group(redlock.Command{"CLIENT", "CACHING", "YES"}, append(redlock.Command{"MGET"}, keys...))
	if !same(got[0], text("OK")) || len(got[1].Array) != len(keys) {
		p.Fatalf("CLIENT CACHING YES and MGET of %q: got %s and %s", keys, show(got[0]), show(got[1]))
	}
}

// expectNotified checks what the listener received since the previous check, in order.
func (p *probe) expectNotified(e *keyListener, reader *probe, want ...string) {
	p.Helper()
	if notified := p.notified(e, reader); !slices.Equal(notified, want) {
		p.Errorf("the listener was notified of %q, want %q", notified, want)
	}
}

// notified returns what the listener received. It first changes one more key. When that arrives,
// nothing earlier is in transit.
func (p *probe) notified(e *keyListener, reader *probe) (notified []string) {
	p.Helper()
	reader.arm("last")
	p.do("SET", "last", "v")
	giveUp := time.NewTimer(patience)
	defer giveUp.Stop()
	for !slices.Contains(notified, "last") {
		select {
		case key := <-e.keys:
			notified = append(notified, key)
		case <-giveUp.C:
			p.Fatalf("the listener was only notified of %q, want also %q", notified, "last")
		}
	}
	return notified[:len(notified)-1]
}

func checkNotified(p *probe) {
	e := p.listen()
	reader := p.track(e)
	for _, change := range [][]string{
		{"SET", "k", "v"}, {"SET", "k", "v", "PX", minute}, {"DEL", "k"}, {"SET", "k", "v", "NX"},
		{"SET", "k", "same"}, {"SET", "k", "same"}, {"DEL", "k", "none"}, {"HSET", "k", "f", "v"}, {"HDEL", "k", "f"}, {"LPUSH", "k", "v"},
	} {
		reader.arm("k", "k2")
		p.do(change...)
		p.expectNotified(e, reader, "k")
		p.expect(text("OK"), "SET", "k2", "v")
		p.expectNotified(e, reader, "k2")
	}
	for _, none := range [][]string{{"DEL", "none"}, {"SET", "k", "v", "NX"}, {"HDEL", "h", "f"}, {"GET", "k"}, {"SET", "k", "v", "PX", "0"}} {
		reader.arm("k", "none", "h")
		p.do(none...)
		p.expectNotified(e, reader)
	}
}

func checkNotifiedOfScripts(p *probe) {
	p.admit()
	e := p.listen()
	reader := p.track(e)
	expect := func(what string, command redlock.Command, keys ...string) {
		p.Helper()
		p.notified(e, reader) // of the commands since the previous call
		reader.arm("k", "k\x00b", "k\x00w")
		p.do(command...)
		p.expectNotified(e, reader, keys...)
		if p.Failed() {
			p.Fatalf("after %s", what)
		}
	}
	expect("an acquire", p.ballot(opAcquire("k", "mine", minute)), "k")
	expect("a refusal", p.ballot(opAcquire("k", "theirs", minute)))
	expect("a waiter", p.ballot(opAcquire("k", "theirs", minute), opWait("k", "waiter", minute)), "k\x00b")
	expect("another", p.ballot(opAcquire("k", "theirs", minute), opWait("k", "waiter", minute)))
	expect("an extension", p.ballot(opExtend("k", "mine", "120000")), "k")
	expect("an extension that changes nothing", p.ballot(opExtend("k", "mine", "1000")))
	expect("a hand-over", p.ballot(opHandOver("k", "mine", "next", minute)), "k")
	expect("a release", p.ballot(opRelease("k", "next")), "k", "k\x00b")
	expect("a reader", p.ballot(opJoinShared("k", "one", "1000000")), "k")
	p.do(p.ballot(opRelease("k", "one"))...)
	p.do(p.ballot(opJoinShared("k", "one", minute), opAcquire("k", "mine", minute), opWait("k", "waiter", minute))...)
	expect("a reader's release", p.ballot(opRelease("k", "one")), "k", "k\x00b")
	p.do(p.ballot(opEndWait("k", "waiter"), opJoinShared("k", "one", minute), opAcquire("k", "mine", minute), opWait("k", "waiter", minute))...)
	expect("a writer's end", p.ballot(opEndWait("k", "waiter")), "k\x00w", "k\x00b")
}

func checkNotifiedOnce(p *probe) {
	e := p.listen()
	reader, other := p.track(e), p.track(e)
	reader.arm("k")
	p.expect(text("OK"), "SET", "k", "v")
	p.expect(text("OK"), "SET", "k", "w")
	p.expectNotified(e, reader, "k")
	reader.arm("k")
	reader.arm("k")
	p.expect(number(1), "DEL", "k")
	p.expectNotified(e, reader, "k")
	reader.arm("k")
	other.arm("k")
	p.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader, "k", "k") // once for each connection
}

func checkNotifiedOfCached(p *probe) {
	e := p.listen()
	reader := p.track(e)
	reader.expect(null(), "GET", "k")
	p.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader)

	caching := redlock.Command{"CLIENT", "CACHING", "YES"}
	for _, c := range []struct {
		between  redlock.Command
		notified []string
	}{
		{redlock.Command{"CLIENT", "ID"}, []string{"k"}},
		{redlock.Command{"PING"}, nil},
		{redlock.Command{"NOSUCH"}, nil},
		{redlock.Command{"GET"}, nil},
	} {
		reader.group(caching, c.between, redlock.Command{"GET", "k"})
		p.expect(text("OK"), "SET", "k", "v")
		p.expectNotified(e, reader, c.notified...)
	}
	for _, read := range []redlock.Command{{"EXISTS", "x", "k"}, {"PTTL", "k"}, {"MGET", "x", "k"}, {"HGET", "k", "f"}} {
		reader.group(caching, read)
		p.expect(text("OK"), "SET", "k", "v")
		p.expectNotified(e, reader, "k")
	}
}

// checkNoLoop checks that with NOLOOP a client is not notified of its own changes. It must still
// read the key again.
func checkNoLoop(p *probe) {
	e := p.listen()
	reader, noLoop := p.track(e), p.track(e, "NOLOOP")
	reader.arm("k")
	reader.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader, "k")
	noLoop.arm("k")
	p.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader, "k")
	noLoop.arm("k")
	noLoop.expect(text("OK"), "SET", "k", "v")
	p.expect(text("OK"), "SET", "k", "w")
	p.expectNotified(e, reader)
}

func checkNotifiedOfExpiry(p *probe) {
	e := p.listen()
	reader := p.track(e, "NOLOOP")
	p.expect(text("OK"), "SET", "later", "v", "PX", minute)
	p.expect(text("OK"), "SET", "k", "v", "PX", "40")
	reader.arm("later", "k")
	select {
	case key := <-e.keys:
		if key != "k" {
			p.Errorf("the listener was notified of %q, want %q", key, "k")
		}
	case <-time.After(patience):
		p.Fatalf("the listener was not notified of the expiry after 40 ms within %v", patience)
	}
	p.expect(number(0), "EXISTS", "k")
	p.expectNotified(e, reader)
}

func checkNotifiedOfFlush(p *probe) {
	e := p.listen()
	reader := p.track(e)
	p.expect(text("OK"), "FLUSHALL") // no key was read
	p.expectNotified(e, reader, simredis.AllKeys)
	reader.arm("k")
	p.expect(text("OK"), "FLUSHALL")
	p.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader, simredis.AllKeys)
}

func checkTrackingOff(p *probe) {
	e := p.listen()
	reader, other := p.track(e), p.track(e)
	other.arm("k")
	other.expect(text("OK"), "CLIENT", "TRACKING", "OFF")
	other.expect(failed("ERR"), "CLIENT", "CACHING", "YES")
	p.expect(text("OK"), "SET", "k", "v")
	p.expectNotified(e, reader)
	other.expect(text("OK"), "CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(e.ID(), 10), "OPTIN")
	other.arm("k")
	p.expect(number(1), "DEL", "k")
	p.expectNotified(e, reader, "k")
}

// checkWoken checks the wake-up that package redlock relies on, which takes one round trip.
func checkWoken(p *probe) {
	p.admit()
	e := p.listen()
	reader := p.track(e)
	attempt := func() redlock.Reply {
		p.Helper()
		got := reader.group(
			p.ballot(opAcquire("k", "theirs", minute), opWait("k", "waiter", minute)),
			redlock.Command{"CLIENT", "CACHING", "YES"}, redlock.Command{"MGET", "k\x00b"})
		return got[2]
	}
	p.expectVote(number(1), p.ballot(opAcquire("k", "mine", minute)))
	if got := attempt(); !same(got, list(text("1"))) {
		p.Errorf("the wake-up key after a refusal: got %s", show(got))
	}
	p.expectVote(number(1), p.ballot(opExtend("k", "mine", "120000")))
	p.expectNotified(e, reader)
	p.expectVote(number(1), p.ballot(opRelease("k", "mine")))
	p.expectNotified(e, reader, "k\x00b")
	if got := attempt(); !same(got, list(null())) {
		p.Errorf("the wake-up key after a grant: got %s, want none", show(got))
	}
}

// expectDone checks that a listener ends at once.
func (p *probe) expectDone(e *keyListener) {
	p.Helper()
	select {
	case <-e.Done():
	case <-time.After(patience):
		p.Fatalf("the listener is not done within %v", patience)
	}
}

func checkListenerClosed(p *probe) {
	e := p.listen()
	reader := p.track(e)
	reader.arm("k")
	select {
	case <-e.Done():
		p.Error("a listener is done although it was not closed")
	default:
	}
	e.Close()
	p.expectDone(e)
	e.Close() // a second Close does no harm
	p.expect(text("OK"), "SET", "k", "v")
	reader.expect(text("PONG"), "PING") // no listener is notified
}

func checkListenerKilled(p *probe) {
	e := p.listen()
	reader := p.track(e)
	reader.arm("k")
	id := strconv.FormatInt(e.ID(), 10)
	p.expect(number(1), "CLIENT", "KILL", "ID", id)
	p.expectDone(e)
	p.expect(text("OK"), "SET", "k", "v")
	reader.expect(text("PONG"), "PING")
	reader.expect(failed("ERR The client ID you want redirect to does not exist"), "CLIENT", "TRACKING", "ON", "REDIRECT", id, "OPTIN")
	again := p.listen()
	reader.expect(text("OK"), "CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(again.ID(), 10), "OPTIN")
	p.expectNotified(again, reader)
}

func checkListenerDown(p *probe) {
	e := p.listen()
	p.node.Down()
	p.expectDone(e)
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if listener, err := p.node.Node().Listen(ctx, func([]string) {}); err == nil {
		listener.Close()
		p.Error("Listen to a node that is down succeeded")
	}
	p.node.Up()
	again := p.listen()
	up := p.on(p.dial())
	up.expectNotified(again, up.track(again))
}

func checkTrackingErrors(p *probe) {
	p.expect(failed("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"), "CLIENT", "CACHING", "YES")
	p.expect(failed("ERR The client ID you want redirect to does not exist"), "CLIENT", "TRACKING", "ON", "REDIRECT", "99999", "OPTIN")
	p.expect(failed("ERR value is not an integer or out of range"), "CLIENT", "TRACKING", "ON", "REDIRECT", "x")
	p.expect(failed("ERR syntax error"), "CLIENT", "TRACKING", "MAYBE")
	p.expect(failed("ERR syntax error"), "CLIENT", "TRACKING", "ON", "NOSUCH")
	p.expect(failed("ERR wrong number of arguments for 'client|tracking' command"), "CLIENT", "TRACKING")
	p.expect(text("OK"), "CLIENT", "TRACKING", "OFF")
	reader := p.track(p.listen())
	reader.expect(failed("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."), "CLIENT", "CACHING", "NO")
	reader.expect(failed("ERR syntax error"), "CLIENT", "CACHING", "MAYBE")
}
