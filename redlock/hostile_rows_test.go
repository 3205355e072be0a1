package redlock_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// hostileRow is a way in which a node can be hostile or broken.
type hostileRow struct {
	name   string
	answer redlocktest.Answer
	reason string // regular expression for the reason in the node's status; "": the listener is replaced soon
}

type question = redlocktest.Question

// ballots changes only the answers to ballots.
func ballots(answer redlocktest.Answer) redlocktest.Answer {
	return when(func(q *question) bool { return q.Command[0] == "EVALSHA" && len(q.Command) > 2 && q.Command[2] > "1" }, answer)
}

// to changes only the answer to one command.
func to(command string, answer redlocktest.Answer) redlocktest.Answer {
	return when(func(q *question) bool { return strings.HasPrefix(strings.Join(q.Command, " "), command) }, answer)
}

// listening sends the answer to the listener as soon as it listens.
func listening(answer redlocktest.Answer) redlocktest.Answer {
	return to("SUBSCRIBE", func(q *question) bool { return redlocktest.PassOn(q) && answer(q) })
}

// ofListener changes only the answers to the pings of the listener.
func ofListener(answer redlocktest.Answer) redlocktest.Answer {
	return when(func(q *question) bool { return q.Listener && q.Command[0] == "PING" }, answer)
}

func when(is func(*question) bool, answer redlocktest.Answer) redlocktest.Answer {
	return func(q *question) bool {
		if is(q) {
			return answer(q)
		}
		return redlocktest.PassOn(q)
	}
}

// says answers with these bytes.
func says(answer string) redlocktest.Answer {
	return func(q *question) bool { return send(q.Conn, answer) }
}

func send(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

// saysOn answers with start and then with more, without end.
func saysOn(start, more string) redlocktest.Answer {
	more = strings.Repeat(more, 1+4096/len(more))
	return func(q *question) bool {
		for ok := send(q.Conn, start); ok; ok = send(q.Conn, more) {
		}
		return false
	}
}

// perOp answers with a list that has answer once per operation.
func perOp(answer string) redlocktest.Answer {
	return func(q *question) bool {
		n := opsOf(q)
		return send(q.Conn, fmt.Sprintf("*%d\r\n%s", n, strings.Repeat(answer, n)))
	}
}

func opsOf(q *question) int {
	n, _ := strconv.Atoi(q.Command[2])
	return n - 1
}

// acquires changes only the answers to acquires, not to releases.
func acquires(answer redlocktest.Answer) redlocktest.Answer {
	return when(func(q *question) bool {
		n := opsOf(q)
		return strings.EqualFold(q.Command[3+1+n+2], strings.Repeat("a", n))
	}, answer)
}

// instead changes the server's own answer.
func instead(change func(reply []byte) []byte) redlocktest.Answer {
	return func(q *question) bool { return send(q.Conn, string(change(q.Reply))) }
}

// text is a string in Redis's protocol.
func text(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

const big = "$999999999999\r\n"

var hostileRows = slicesOf(
	hostileAnswers, brokenConnections, refusals, wrongBallots, wrongLooks, wrongLogins, wrongPushes,
)

func slicesOf(all ...[]hostileRow) (rows []hostileRow) {
	for _, some := range all {
		rows = append(rows, some...)
	}
	return rows
}

// hostileAnswers are answers that could harm their reader.
var hostileAnswers = []hostileRow{
	{"endless string", ballots(saysOn(big, "x")), `a string of 999999999999 bytes, more than`},
	{"string as long as memory", ballots(says("$9223372036854775807\r\n")), `a string of 9223372036854775807 bytes`},
	{"string within the bound, and another", ballots(saysOn("*100000\r\n", text(strings.Repeat("x", 1<<20)))), `an answer of more than \d+ bytes`},
	{"endless list", ballots(saysOn("*999999999999\r\n", ":1\r\n")), `an answer of more than \d+ parts`},
	{"lists that announce lists", ballots(saysOn("*100000\r\n*100000\r\n", ":1\r\n")), `an answer of more than \d+ parts`},
	{"endless lists in lists", ballots(saysOn("", "*1\r\n")), `lists in lists`},
	{"endless maps in maps", ballots(saysOn("", "%1\r\n")), `lists in lists`},
	{"map of too many", ballots(says("%9223372036854775807\r\n")), `an answer of more than \d+ parts`},
	{"endless line", ballots(saysOn("+", "x")), `a line of more than`},
	{"endless error", ballots(saysOn("-", "ERR ")), `a line of more than`},
	{"endless number", ballots(saysOn(":", "1")), `no number`},
	{"string of -2 bytes", ballots(says("$-2\r\n")), `a length below 0`},
	{"list of -5", ballots(says("*-5\r\n")), `a length below 0`},
	{"map of -1", ballots(says("%-1\r\n")), `a length below 0`},
	{"push of -1", ballots(says(">-1\r\n")), `a length below 0`},
	{"length that is none", ballots(says("*1x\r\n")), `no number`},
	{"length of nothing", ballots(says("$\r\n")), `no number`},
	{"length of minus", ballots(says("$-\r\n")), `no number`},
	{"number beyond 64 bits", ballots(says("*1\r\n:9223372036854775808\r\n")), `no number`},
	{"line without CR", ballots(says("+OK\n+OK\r\n")), `does not end with CR`},
	{"string that is longer", ballots(says("*1\r\n$2\r\nabc\r\n")), `does not end with CR`},
	{"null with something in it", ballots(says("_x\r\n")), `null with`},
	{"chunks", ballots(says("$?\r\n;4\r\nabcd\r\n;0\r\n")), `no number`},
	{"stream of a list", ballots(saysOn("*?\r\n", ":1\r\n")), `no number`},
	{"endless attributes", ballots(saysOn("", "|1\r\n+a\r\n+b\r\n")), `something that begins with '\|'`},
	{"set", ballots(says("~1\r\n:1\r\n")), `something that begins with '~'`},
	{"double", ballots(perOp(",1.5\r\n")), `something that begins with ','`},
	{"truth", ballots(perOp("#t\r\n")), `something that begins with '#'`},
	{"HTTP", ballots(says("HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n")), `something that begins with 'H'`},
	{"TLS", ballots(says("\x15\x03\x01\x00\x02\x02\x46")), `something that begins with '\\x15'`},
	{"noise", ballots(func(q *question) bool {
		noise := bytes.Repeat([]byte{0}, 1+rand.IntN(4096))
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		send(q.Conn, string(noise))
		return false
	}), `does not speak the protocol of Redis|EOF|reset by peer|broken pipe|a list of|Err|ERR|null`},
	{"one answer more", ballots(instead(func(reply []byte) []byte { return append(reply, ":1\r\n"...) })), `an answer without a request`},
	{"all answers twice", when(func(q *question) bool { return q.Command[0] != "HELLO" },
		instead(func(reply []byte) []byte { return append(reply, reply...) })), `without a request|nobody asked for|in answer to`},
	{"large answers, many", ballots(perOp(text(strings.Repeat("x", 1<<20)))), `a string of 1048576 bytes in answer to|more than \d+ bytes`},
}

// brokenConnections are connections that break or hang.
var brokenConnections = []hostileRow{
	{"hangs up on each ballot", ballots(func(*question) bool { return false }), `it ended the connection`},
	{"hangs up after half an answer", ballots(func(q *question) bool {
		send(q.Conn, string(q.Reply[:len(q.Reply)/2]))
		return false
	}), `it ended the connection`},
	{"hangs up at once", func(*question) bool { return false }, `it ended the connection before it answered the login`},
	{"hangs up after the log-in", to("SCRIPT LOAD", func(*question) bool { return false }), `it ended the connection`},
	{"never answers", ballots(func(q *question) bool { return true }), `silent for|no answer`},
	{"never answers at all", func(q *question) bool { return true }, `no answer to the login in time|deadline|timeout`},
	{"drip", ballots(func(q *question) bool {
		for i := range q.Reply {
			if time.Sleep(50 * ms); !send(q.Conn, string(q.Reply[i:i+1])) {
				return false
			}
		}
		return true
	}), `silent for`},
	{"too late", ballots(func(q *question) bool {
		time.Sleep(shortTimeout + 100*ms)
		return redlocktest.PassOn(q)
	}), `silent for`},
}

// refusals are errors that Redis has.
var refusals = func() (rows []hostileRow) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory", "OOM command not allowed when used memory > 'maxmemory'.", "READONLY You can't write against a read only replica.",
		"MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381", "NOAUTH Authentication required.", "NOPERM this user has no permissions", "WRONGPASS invalid username-password pair",
		"BUSY Redis is busy running a script.", "MISCONF Redis is configured to save RDB snapshots", "CLUSTERDOWN The cluster is down", "MASTERDOWN Link with MASTER is down",
		"NOSCRIPT No matching script.", "EXECABORT Transaction discarded", "TRYAGAIN Multiple keys request during rehashing of slot", "UNKILLABLE Sorry", "NOREPLICAS Not enough good replicas to write.",
	} {
		kind, _, _ := strings.Cut(text, " ")
		reason := kind + " "
		if kind == "NOPERM" {
			reason += `|lacks \+evalsha; fix: ACL SETUSER default \+evalsha`
		}
		rows = append(rows, hostileRow{kind, ballots(says("-" + text + "\r\n")), reason})
	}
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "NOAUTH Authentication required.", "MOVED 3999 127.0.0.1:6381"} {
		rows = append(rows, hostileRow{text + " (HGET)", to("HGET", says("-"+text+"\r\n")), "HGET.*" + text})
	}
	for _, text := range []string{"OOM command not allowed", "READONLY not against a replica", "MISCONF cannot write"} {
		rows = append(rows, hostileRow{text + " (each operation)", ballots(perOp("-" + text + "\r\n")), text})
	}
	return append(rows,
		hostileRow{"error without a word", ballots(says("-\r\n")), "ERR"},
		hostileRow{"error within a list", ballots(acquires(perOp("*2\r\n" + text("token") + "-NOPERM no pttl\r\n"))), "NOPERM no pttl"})
}()

// wrongBallots are well-formed, but are no answers to a ballot.
var wrongBallots = []hostileRow{
	{"string", ballots(says("+OK\r\n")), `a string of 2 bytes in answer to`},
	{"number", ballots(says(":5\r\n")), `5 .* in answer to`},
	{"null", ballots(says("_\r\n")), `null in answer to`},
	{"old null", ballots(says("*-1\r\n")), `null in answer to`},
	{"map", ballots(says("%1\r\n+a\r\n:1\r\n")), `in answer to`},
	{"empty list", ballots(says("*0\r\n")), `in answer to`},
	{"one operation too many", ballots(func(q *question) bool {
		n := opsOf(q) + 1
		return send(q.Conn, fmt.Sprintf("*%d\r\n%s", n, strings.Repeat(":1\r\n", n)))
	}), `a list of \d+ in answer to`},
	{"list of nulls", ballots(perOp("_\r\n")), `null in answer to`},
	{"fencing token 0", ballots(acquires(perOp(":0\r\n"))), `0 .* in answer to acquire`},
	{"fencing token 2^53", ballots(acquires(perOp(":9007199254740992\r\n"))), `9007199254740992 .* in answer to acquire`},
	{"fencing token centuries ahead", ballots(acquires(perOp(":9006099743113215\r\n"))), `days ahead of most nodes' clocks`},
	{"fencing token centuries ahead, and somebody waits", ballots(acquires(perOp(":-9006099743113216\r\n"))), `days ahead of most nodes' clocks`},
	{"fencing token -2^63", ballots(acquires(perOp(":-9223372036854775808\r\n"))), `no number`},
	{"released 7", ballots(perOp(":7\r\n")), `7 .* in answer to release`},
	{"token that is a number", ballots(acquires(perOp("*2\r\n:5\r\n:1000\r\n"))), `a list of 2 in answer to acquire`},
	{"ttl that is a string", ballots(acquires(perOp("*2\r\n" + text("t") + "+x\r\n"))), `a list of 2 in answer to acquire`},
	{"token that is a list", ballots(acquires(perOp("*2\r\n*1\r\n+x\r\n:1\r\n"))), `a list of 2 in answer to acquire`},
	{"holder of three parts", ballots(acquires(perOp("*3\r\n" + text("t") + ":1\r\n+x\r\n"))), `a list of 3 in answer to acquire`},
	{"holder of seven parts", ballots(acquires(perOp("*7\r\n" + strings.Repeat(":1\r\n", 7)))), `a list of 7 in answer to acquire`},
}

// wrongLooks are no answers to the commands that a lane sends before a node may vote, and once a
// second.
var wrongLooks = []hostileRow{
	{"TIME is a string", to("TIME", says("+OK\r\n")), `in answer to TIME`},
	{"TIME of one part", to("TIME", says("*1\r\n"+text("1795247588"))), `in answer to TIME`},
	{"TIME of letters", to("TIME", says("*2\r\n"+text("abc")+text("x"))), `in answer to TIME`},
	{"TIME below 0", to("TIME", says("*2\r\n"+text("-5")+text("0"))), `in answer to TIME`},
	{"TIME beyond all years", to("TIME", says("*2\r\n"+text("9223372036854775807")+text("0"))), `in answer to TIME`},
	{"TIME of numbers", to("TIME", says("*2\r\n:1795247588\r\n:1\r\n")), `in answer to TIME`},
	{"epoch is a number", to("HGET", says(":1\r\n")), `in answer to HGET`},
	{"epoch is noise", to("HGET", says(text("\x00\x01\xff"))), `an epoch that this version`},
	{"epoch of a MB", to("HGET", says(text("admitted:"+strings.Repeat("x", 1<<20)))), `an epoch that this version`},
	{"INFO is a list", to("INFO", says("*1\r\n:1\r\n")), `in answer to INFO`},
	{"INFO is empty", to("INFO", says(text(""))), `redis_version ""`},
	{"INFO is noise", to("INFO", says(text(strings.Repeat("\x00:\xff\r\n", 10000)))), `redis_version ""`},
	{"INFO of 20 MB", to("INFO", saysOn("$20000000\r\n", "x")), `a string of 20000000 bytes`},
	{"INFO of an old version", to("INFO", says(text("redis_version:5.0.3\r\nrun_id:x\r\nrole:master\r\n"))), `redis_version "5.0.3"`},
	{"a Sentinel", func(q *question) bool {
		switch q.Command[0] {
		case "TIME", "HGET":
			return send(q.Conn, "-ERR unknown command '"+q.Command[0]+"', with args beginning with: \r\n")
		case "INFO":
			return send(q.Conn, text("redis_version:7.0.15\r\nredis_mode:sentinel\r\nrun_id:x\r\n"))
		}
		return redlocktest.PassOn(q)
	}, `it is a Sentinel.*address`},
	{"INFO without run_id", to("INFO", says(text("redis_version:7.0.15\r\nrole:master\r\n"))), `no run_id`},
	{"INFO of a version with a MB", to("INFO", says(text("redis_version:"+strings.Repeat("x", 1<<20)+"\r\n"))), `redis_version "x`},
	{"CLIENT ID is forbidden", to("CLIENT ID", says("-NOPERM no\r\n")), `lacks \+client\|id; fix: ACL SETUSER default \+client\|id`},
	{"CLIENT ID is a string", to("CLIENT ID", says("+x\r\n")), `in answer to CLIENT ID`},
	{"CLIENT ID below 0", to("CLIENT ID", says(":-4\r\n")), `in answer to CLIENT ID`},
	{"CLIENT KILL is forbidden", to("CLIENT KILL", says("-NOPERM no\r\n")), `lacks \+client\|kill; fix: ACL SETUSER default \+client\|kill`},
	{"SCRIPT LOAD of another script", to("SCRIPT LOAD", says(text(strings.Repeat("a", 40)))), `in answer to SCRIPT LOAD`},
	{"SCRIPT LOAD is a number", to("SCRIPT LOAD", says(":1\r\n")), `in answer to SCRIPT LOAD`},
}

// wrongLogins are no answers to a log-in.
var wrongLogins = []hostileRow{
	{"HELLO is a number", to("HELLO", says(":1\r\n")), `HELLO|not a map|map`},
	{"HELLO is noise", to("HELLO", says("\x00\x00\x00")), `something that begins with`},
	{"HELLO of an odd list", to("HELLO", says("*3\r\n+a\r\n+b\r\n+c\r\n")), `not even|map`},
	{"HELLO without end", to("HELLO", saysOn(big, "x")), `a string of 999999999999 bytes`},
	{"HELLO of RESP2", to("HELLO", says("%1\r\n+proto\r\n:2\r\n")), `.`},
	{"HELLO and wrong password", to("HELLO", says("-WRONGPASS invalid username-password pair or user is disabled.\r\n")), `WRONGPASS`},
	{"HELLO and no authentication", to("HELLO", says("-NOAUTH HELLO must be called with the client already authenticated\r\n")), `NOAUTH`},
	{"HELLO and loading", to("HELLO", says("-LOADING Redis is loading the dataset in memory\r\n")), `LOADING`},
	{"HELLO is answered in part", to("HELLO", func(q *question) bool { return send(q.Conn, "%7\r\n+server\r\n") && false }), `it ended the connection, or something between did`},
	{"HELLO is unknown, and all else", func(q *question) bool {
		return send(q.Conn, "-ERR unknown command '"+q.Command[0]+"'\r\n")
	}, `unknown command`},
}

// wrongPushes are sent to a listener.
var wrongPushes = []hostileRow{
	{"listener hears an answer without a request", listening(says("+PONG\r\n")), ``},
	{"listener hears of a subscription", listening(says(">3\r\n+subscribe\r\n+x\r\n:1\r\n")), ``},
	{"listener hears of the end of one", listening(says(">3\r\n+sunsubscribe\r\n+x\r\n:1\r\n")), ``},
	{"listener hears a message", listening(says(">3\r\n+message\r\n+x\r\n+y\r\n")), `^<nil>$`},
	{"listener hears that a number was invalidated", listening(says(">2\r\n+invalidate\r\n:5\r\n")), ``},
	{"listener hears of too many keys", listening(says(">2\r\n+invalidate\r\n*999999999\r\n")), ``},
	{"listener hears of a key without end", listening(saysOn(">2\r\n+invalidate\r\n*1\r\n"+big, "x")), ``},
	{"listener hears an empty push", listening(says(">0\r\n")), ``},
	{"listener's ping is answered by a confirmation", ofListener(says(">3\r\n+subscribe\r\n+x\r\n:1\r\n")), ``},
	{"listener's subscription is queued", to("SUBSCRIBE", says("+QUEUED\r\n")), ``},
	{"listener's subscription is answered by a number", to("SUBSCRIBE", says(":1\r\n")), ``},
	{"flushes without end", listening(saysOn("", ">2\r\n+invalidate\r\n_\r\n")), ``},
	{"pushes without end", ballots(saysOn("", ">3\r\n+message\r\n+x\r\n+y\r\n")), `a push about "message"`},
	{"pushes of another kind", ballots(says(">4\r\n+pmessage\r\n+x\r\n+x\r\n+y\r\n")), `a push about "pmessage"`},
	{"push within an answer", ballots(says("*1\r\n>3\r\n+message\r\n+x\r\n+y\r\n")), `a push within an answer`},
}
