package conformance

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// patience is how long a step waits for an event. Only a failing test takes that long.
const patience = time.Minute

// player plays a script to a program.
type player struct {
	t        *testing.T
	at       string // the current step
	daemon   *daemon
	conn     *conn // the connection in use
	program  *program
	vars     map[string]string
	ignored  map[string]bool
	always   map[string]step // what such requests are answered
	deadline time.Duration   // the last one that the daemon named
}

// play plays the script at path.
func play(t *testing.T, path string, on *program) {
	d := startDaemon(t)
	p := &player{t: t, at: "begin", daemon: d, vars: map[string]string{}, ignored: map[string]bool{}, always: map[string]step{}, program: on}
	on.tell(p, "begin "+d.path)
	for _, s := range readScript(t, path) {
		p.at = s.at
		p.do(s)
	}
	p.at = filepath.Base(path) + ": end"
	p.end()
}

func (p *player) do(s step) {
	switch s.verb {
	case "tell":
		p.program.tell(p, s.rest)
	case "hear":
		p.hear(s)
	case "read":
		p.read(s)
	case "answer":
		p.connection().say(p, "@"+p.variable(s.words[0])+" "+p.expand(s.words[1:]))
	case "say":
		p.connection().say(p, p.expand(s.words))
	case "halves":
		line := "@" + p.variable(s.words[0]) + " " + p.expand(s.words[1:])
		p.connection().sayHalves(p, line)
	case "many":
		p.many(s)
	case "accept":
		p.conn = p.daemon.next(p)
	case "refuse":
		p.daemon.stop(p)
	case "listen":
		p.daemon.listen(p)
	case "hangup":
		p.connection().hangUp()
	case "closed":
		p.closed()
	case "clock":
		p.daemon.ahead.Store(int64(p.milliseconds(s.words[0])))
	case "ignore":
		p.ignored[s.words[0]] = true
	case "always":
		p.always[s.words[0]] = s
	case "stop":
		p.program.stop(p)
	case "overdue":
		time.Sleep(p.deadline - boottime.Exact())
	case "continue":
		p.program.signal(p, syscall.SIGCONT)
	case "early":
		if now := boottime.Exact(); now >= p.deadline {
			p.fatalf("this came %v after the deadline", now-p.deadline)
		}
	case "late":
		if now := boottime.Exact(); now < p.deadline {
			p.fatalf("this came %v before the deadline", p.deadline-now)
		}
	default:
		p.fatalf("%q is no step: see README.md", s.verb)
	}
}

func (p *player) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: %s%s", p.at, fmt.Sprintf(format, args...), p.program.said())
}

// hear waits for the next line that the program prints.
func (p *player) hear(s step) {
	got := p.program.hear(p)
	if !p.match(splitWords(got), s.words) {
		p.fatalf("the program prints %q, want %q", got, s.rest)
	}
}

// match compares words one by one. A * in a script matches any word.
func (p *player) match(got, want []string) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range want {
		if !p.matchWord(got[i], want[i]) {
			return false
		}
	}
	return true
}

func (p *player) matchWord(got, want string) bool {
	key, value, isOption := strings.Cut(want, "=")
	if isOption {
		gotKey, gotValue, _ := strings.Cut(got, "=")
		return gotKey == key && p.matchValue(gotValue, value)
	}
	return p.matchValue(got, want)
}

// matchValue compares a value with one of a script: * is any, ?NAME is a variable, ..N is a number
// of at most N.
func (p *player) matchValue(got, want string) bool {
	switch {
	case want == "*":
		return true
	case strings.HasPrefix(want, "?"):
		if before, known := p.vars[want[1:]]; known {
			return got == before
		}
		p.vars[want[1:]] = got
		return true
	case strings.HasPrefix(want, ".."):
		n, err := strconv.Atoi(got)
		most, _ := strconv.Atoi(want[2:])
		return err == nil && n >= 0 && n <= most
	}
	return got == want
}

func (p *player) variable(name string) string {
	value, known := p.vars[name]
	if !known {
		p.fatalf("there was no request %q", name)
	}
	return value
}

// read waits for the next request. "read LOCK job wait=0 as a": these options must be there, in any
// order, and others may be. The request's tag is then a.
func (p *player) read(s step) {
	words, label := s.words, ""
	if n := len(words); n > 2 && words[n-2] == "as" {
		words, label = words[:n-2], words[n-1]
	}
	line := p.request()
	tag, got := "", splitWords(line)
	if len(got) > 0 && strings.HasPrefix(got[0], "@") {
		tag, got = got[0][1:], got[1:]
	}
	var gotWords, gotOptions, wantWords, wantOptions []string
	for _, word := range got {
		if strings.Contains(word, "=") {
			gotOptions = append(gotOptions, word)
		} else {
			gotWords = append(gotWords, word)
		}
	}
	for _, word := range words {
		if strings.Contains(word, "=") {
			wantOptions = append(wantOptions, word)
		} else {
			wantWords = append(wantWords, word)
		}
	}
	if len(gotWords) > 0 && gotWords[0] == "TRY" { // LOCK with wait=0
		gotWords[0], gotOptions = "LOCK", append(gotOptions, "wait=0")
	}
	if !p.match(gotWords, wantWords) || !p.hasOptions(gotOptions, wantOptions) {
		p.fatalf("the daemon reads %q, want %q", line, s.rest)
	}
	if label != "" {
		if tag == "" {
			p.fatalf("the daemon reads %q, want a tag", line)
		}
		p.vars[label] = tag
	}
}

func (p *player) hasOptions(got, want []string) bool {
	for _, option := range want {
		found := false
		for _, has := range got {
			found = found || p.matchWord(has, option)
		}
		if !found {
			return false
		}
	}
	return true
}

// request returns the next request that the script has to handle.
func (p *player) request() string {
	for {
		line := p.connection().request(p)
		if line == "" {
			p.fatalf("the client closed the connection")
		}
		if !p.isHandled(line) {
			return line
		}
	}
}

// isHandled reports whether the script has said earlier what to do with such a request, and does it.
func (p *player) isHandled(line string) bool {
	words := splitWords(line)
	if len(words) > 1 && strings.HasPrefix(words[0], "@") {
		if s, is := p.always[words[1]]; is {
			p.connection().say(p, words[0]+" "+p.expand(s.words[1:]))
			return true
		}
		words = words[1:]
	}
	return len(words) > 0 && p.ignored[words[0]]
}

// expand returns a line of the daemon. "valid=600" is the ttl and the deadline of a lease that is
// valid for so many milliseconds from now on. In "valid=600/9000" the ttl is another one. ?NAME is a
// variable.
func (p *player) expand(words []string) string {
	line := make([]string, 0, len(words))
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "valid":
			valid, ttl, differ := strings.Cut(value, "/")
			if !differ {
				ttl = valid
			}
			p.deadline = boottime.Exact().Truncate(time.Millisecond) + p.milliseconds(valid)
			said := p.deadline + time.Duration(p.daemon.ahead.Load())
			word = fmt.Sprintf("ttl=%s deadline=%d", ttl, said.Milliseconds())
		case strings.HasPrefix(value, "?"):
			word = key + "=" + p.variable(value[1:])
		}
		line = append(line, word)
	}
	return strings.Join(line, " ")
}

func (p *player) milliseconds(text string) time.Duration {
	ms, err := strconv.Atoi(text)
	if err != nil {
		p.fatalf("%q: %v", text, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// many answers with many lines, about 64 KB: "many a 700 lock=job-N state=held".
func (p *player) many(s step) {
	n, err := strconv.Atoi(s.words[1])
	if err != nil {
		p.fatalf("%v", err)
	}
	tag := "@" + p.variable(s.words[0])
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "%s - %s\n", tag, strings.ReplaceAll(strings.Join(s.words[2:], " "), "N", strconv.Itoa(i)))
	}
	fmt.Fprintf(&lines, "%s OK n=%d", tag, n)
	p.connection().say(p, lines.String())
}

func (p *player) connection() *conn {
	if p.conn == nil {
		p.conn = p.daemon.next(p)
	}
	return p.conn
}

// closed waits until the client has closed the connection.
func (p *player) closed() {
	for {
		switch line := p.conn.request(p); {
		case line == "":
			return
		case !p.isHandled(line):
			p.fatalf("the daemon reads %q, want the end of the connection", line)
		}
	}
}

// end ends the client. It must not say anything more.
func (p *player) end() {
	p.program.tell(p, "end")
	if got := p.program.hear(p); got != "ended" {
		p.fatalf("the program also prints %q", got)
	}
	if p.conn != nil {
		p.closed()
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
