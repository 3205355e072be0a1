package simredis

import (
	"reflect"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

const now = int64(1_800_000_000_123_456)

func newTestState() *State {
	s := NewState("a", 0)
	s.Clients = func() []*Client { return nil }
	return &s
}

// run runs a script. It returns its reply.
func run(t *testing.T, s *State, source string, args ...string) redlock.Reply {
	t.Helper()
	loaded := s.Exec(&Client{}, now, redlock.Command{"SCRIPT", "LOAD", source})
	if loaded.Err != nil {
		t.Fatal(loaded.Err)
	}
	return s.Exec(&Client{}, now, append(redlock.Command{"EVALSHA", loaded.Str, "0"}, args...))
}

// Each mistake changes the scripts, and these still compile. A mistake whose text is gone is refused.
func TestEachVariantFitsTheScripts(t *testing.T) {
	for v := range edits {
		s := newTestState()
		s.Plant(v)
		changed := false
		for sha, source := range s.planted {
			if _, err := compile(source); err != nil {
				t.Errorf("%s: %v", v, err)
			}
			changed = changed || source != ScriptsBySHA[sha].Source
		}
		if changed != (len(edits[v]) > 0) {
			t.Errorf("%s: scripts changed: %v", v, changed)
		}
	}
	planted := plantedScripts{"sha": "local reply = 1"}
	if err := planted.plant(ReleaseBlindly); err == nil || !strings.Contains(err.Error(), "0 times, want 1") {
		t.Errorf("a mistake whose text is not there: got %v", err)
	}
	if err := planted.plant("nosuch"); err == nil {
		t.Error("an unknown mistake was planted")
	}
}

// Scripts see replies, and return values, as in Redis.
func TestScriptValues(t *testing.T) {
	for source, want := range map[string]redlock.Reply{
		`return redis.call('SET', 'k', 'v').ok`:                              Text("OK"),
		`return redis.call('GET', 'nosuch') == false and 1 or 0`:             Number(1),
		`return redis.call('SET', 'e', '') and type(redis.call('GET', 'e'))`: Text("string"),
		`return type(redis.call('EXISTS', 'nosuch'))`:                        Text("number"),
		`return {1.9, -1.9, 'x', true, false, 2}`:                            List(Number(1), Number(-1), Text("x"), Number(1), Null(), Number(2)),
		`return {1, nil, 3}`:                                                 List(Number(1)),
		`return {redis.pcall('NOSUCH'), {err = 'A b'}}`:                      List(Failed("ERR Unknown Redis command called from script"), Failed("A b")),
		`redis.call('GET')`:                                                  Failed("ERR Wrong number of args calling Redis command from script"),
		`redis.call('LPUSH', 'l', 1); return redis.pcall('ZCARD', 'l')`:      Refuse(errWrongType),
		`return redis.error_reply('LATE x')`:                                 Failed("LATE x"),
		`return redis.error_reply('late')`:                                   Failed("ERR late"),
		`return redis.pcall('EVALSHA', 'x', 0)`:                              Failed("ERR This Redis command is not allowed from script"),
		`local t = redis.call('TIME'); return t[1] .. t[2]`:                  Text("1800000000123456"),
	} {
		if got := run(t, newTestState(), source); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", source, got, want)
		}
	}
	if got := run(t, newTestState(), `x = 1`); got.Err == nil {
		t.Error("a script made a global variable")
	}
}

// Microseconds since 1970 survive as scores, and the other options are those of Redis.
func TestSortedSetsAndExpiry(t *testing.T) {
	s := newTestState()
	for _, c := range []struct {
		command string
		want    redlock.Reply
	}{
		{"ZADD z NX 1800000000123457 b 1800000000123456 a", Number(2)},
		{"ZADD z NX 1 a", Number(0)},
		{"ZADD z XX 1 c", Number(0)},
		{"ZADD z GT 5 a", Number(0)},
		{"ZADD z GT CH 1800000000123458 a", Number(1)},
		{"ZADD z x a", Refuse(errNotFloat)},
		{"ZADD z NX GT 1 a", Failed("ERR GT, LT, and/or NX options at the same time are not compatible")},
		{"ZSCORE z a", Text("1800000000123458")},
		{"ZSCORE z nosuch", Null()},
		{"ZRANK z a", Number(1)},
		{"ZRANK z nosuch", Null()},
		{"ZCARD z", Number(2)},
		{"ZCOUNT z (1800000000123457 +inf", Number(1)},
		{"ZCOUNT z -inf 1800000000123457", Number(1)},
		{"ZCOUNT z x 1", Refuse(errRange)},
		{"ZRANGE z -1 -1 WITHSCORES", List(Text("a"), Text("1800000000123458"))},
		{"ZRANGE z 0 -1", List(Text("b"), Text("a"))},
		{"ZRANGE z -inf 1800000000123457 BYSCORE WITHSCORES", List(Text("b"), Text("1800000000123457"))},
		{"ZRANGE z (1800000000123457 +inf BYSCORE LIMIT 0 9", List(Text("a"))},
		{"ZRANGE z 0 -1 LIMIT 0 1", Refuse(errSyntax)},
		{"ZADD lex 0 a 0 b 0 c", Number(3)},
		{"ZRANGE lex - + BYLEX LIMIT 1 1", List(Text("b"))},
		{"ZRANGE lex (a [c BYLEX", List(Text("b"), Text("c"))},
		{"ZRANGE lex a c BYLEX", Refuse(errLexRange)},
		{"ZREM z a b", Number(2)},
		{"EXISTS z z", Number(0)},
		{"SET k v PXAT 1800000000999", Text("OK")},
		{"PTTL k", Number(876)},
		{"SET k w KEEPTTL", Text("OK")},
		{"PTTL k", Number(876)},
		{"SET k w PX 5 KEEPTTL", Refuse(errSyntax)},
		{"PEXPIRE k 5 GT", Number(0)},
		{"PEXPIRE k 1000 GT", Number(1)},
		{"PTTL k", Number(1000)},
		{"PEXPIREAT k 1800000000200", Number(1)},
		{"PTTL k", Number(77)},
		{"PEXPIREAT k 1800000000123", Number(1)},
		{"EXISTS k k", Number(0)},
		{"PEXPIRE k 5", Number(0)},
		{"SET forever v", Text("OK")},
		{"PEXPIRE forever 5 GT", Number(0)},
	} {
		if got := s.Exec(&Client{}, now, strings.Fields(c.command)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.command, got, c.want)
		}
	}
}

// A message reaches the subscribers of its channel that are still connected.
func TestPublish(t *testing.T) {
	s := newTestState()
	one, two := &Client{Id: 1}, &Client{Id: 2}
	connected := []*Client{one, two}
	s.Clients = func() []*Client { return connected }
	var delivered []any
	s.Deliver = func(id int64, channel, message string) { delivered = append(delivered, id, channel, message) }
	if got := s.Exec(one, now, redlock.Command{"SUBSCRIBE", "c"}); !reflect.DeepEqual(got, List(Text("subscribe"), Text("c"), Number(1))) {
		t.Errorf("SUBSCRIBE: got %+v", got)
	}
	s.Exec(two, now, redlock.Command{"SUBSCRIBE", "c"})
	for _, want := range []int64{2, 1, 0} {
		if got := run(t, s, `return redis.call('PUBLISH', 'c', 'm')`); got.Int != want {
			t.Errorf("PUBLISH reached %d clients, want %d", got.Int, want)
		}
		connected = connected[:max(len(connected)-1, 0)]
	}
	if want := []any{int64(1), "c", "m", int64(2), "c", "m", int64(1), "c", "m"}; !reflect.DeepEqual(delivered, want) {
		t.Errorf("delivered %v, want %v", delivered, want)
	}
}
