package redlock_test

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The memory of an answer's array is reused for the next answer. The memory of an array inside it
// is not, because a ballot keeps the array that shows a holder. Guards read, readList.
func TestMemoryOfRepliesIsReused(t *testing.T) {
	conn := dialOne(t)
	replies := make([]redlock.Reply, 1)
	answer := func(lua string) *redlock.Reply {
		t.Helper()
		if err := conn.Do(t.Context(), []redlock.Command{{"EVAL", "return " + lua, "0"}}, replies); err != nil {
			t.Fatal(err)
		}
		return &replies[0]
	}
	first := answer("{{1, 2}, 'x', 3}").Array
	kept := first[0].Array
	second := answer("{{8, 9}, 7}").Array
	want(t, "memory of the array", &second[0], &first[0])
	want(t, "an element of the kept array", kept[0].Int, int64(1))
	want(t, "an element of the new one", second[0].Array[0].Int, int64(8))
	want(t, "the string of an element that is a number now", second[1].Str, "")
	want(t, "length of no array", len(answer("5").Array), 0)
	want(t, "the number", replies[0].Int, int64(5))
}

// If a node ended the connection, the error says so; EOF alone would not. Guards explainHangUp.
func TestErrorReportsHangUp(t *testing.T) {
	conn := dialOne(t)
	replies := make([]redlock.Reply, 1)
	var err error
	for range 2 { // the first command may be answered before the kill
		if err = conn.Do(t.Context(), []redlock.Command{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}}, replies); err != nil {
			break
		}
	}
	if err == nil || !strings.HasPrefix(err.Error(), "it ended the connection") {
		t.Errorf("got error %v, want it to say that the node ended the connection", err)
	}
}

// dialOne returns a connection to a redis-server that runs until the test ends.
func dialOne(t *testing.T) redlock.Conn {
	t.Helper()
	conn, err := redlocktest.StartRedis(t, 1).Servers[0].Node().Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
