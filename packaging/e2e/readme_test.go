//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// block is a fenced block of the README. The comment before it says what the
// tests do with it: <!-- terminal 2 -->, <!-- config -->, <!-- program: client -->.
type block struct {
	comment string // what stands in the comment
	kind    string // console, hcl, go …
	first   int    // number of its first line
	lines   []string
}

var commentLine = regexp.MustCompile(`^<!-- (.+) -->$`)

// readme is all of the README's blocks.
func readme(t *testing.T) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	comment := ""
	for i, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		found := commentLine.FindStringSubmatch(line)
		switch {
		case isFence && open == nil:
			open = &block{comment: comment, kind: fence, first: i + 2}
		case isFence:
			blocks, open, comment = append(blocks, *open), nil, ""
		case open != nil:
			open.lines = append(open.lines, line)
		case found != nil:
			comment = found[1]
		}
	}
	return blocks
}

func (b *block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// only is the one block with this comment.
func only(t *testing.T, comment string) block {
	t.Helper()
	for _, b := range readme(t) {
		if b.comment == comment {
			return b
		}
	}
	t.Fatalf("the README has no block after <!-- %s -->", comment)
	return block{}
}

// Everything that the README shows in terminals happens as it says, in this
// order, with redlockd -dev; but for what differs each time.
func TestReadmeTranscripts(t *testing.T) {
	h, _, greeting := dev(t)
	desks := map[string]*desk{}
	shown := 0
	for _, b := range readme(t) {
		if b.kind != "console" {
			continue
		}
		number, isTerminal := strings.CutPrefix(b.comment, "terminal ")
		if strings.HasPrefix(b.comment, freshNodes) {
			continue
		}
		shown++
		switch {
		case !isTerminal:
			t.Errorf("README line %d: a transcript that no test can run: <!-- terminal N --> is wanted before it", b.first)
		case strings.HasPrefix(number, "1:"): // the daemon's own
			want := []string{"$ go run ./cmd/redlockd -dev", greeting}
			if b.text() != strings.Join(want, "\n")+"\n" {
				t.Errorf("README line %d:\ngot  %s\nwant %s", b.first, greeting, b.text())
			}
		default:
			if desks[number] == nil {
				desks[number] = newDesk(t, h)
			}
			desks[number].play(b)
		}
	}
	if shown < 5 {
		t.Errorf("the README shows only %d transcripts: are their comments still understood?", shown)
	}
}

// freshNodes marks what TestReadmeQuarantine plays.
const freshNodes = "fresh nodes: "

// What the README shows of the first start happens with five real nodes that are
// brand-new.
func TestReadmeQuarantine(t *testing.T) {
	needNC(t)
	h := newHost(t, redlocktest.StartRedis(t, 5))
	h.serve()
	d, shown := newDesk(t, h), 0
	for _, b := range readme(t) {
		if strings.HasPrefix(b.comment, freshNodes) {
			for i := range b.lines {
				b.lines[i] = strings.ReplaceAll(b.lines[i], "/run/redlockd/redlockd.sock", h.socket)
			}
			d.play(b)
			shown++
		}
	}
	if shown != 2 {
		t.Errorf("the README shows %d transcripts of the first start, expected 2", shown)
	}
}

// desk is a terminal of the README: a shell, in which nc may run.
type desk struct {
	*process
	inNC bool
}

func newDesk(t *testing.T, h *host) *desk {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec bash 2>&1")
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "REDLOCK_SOCKET="+h.socket)
	return &desk{process: startCommand(t, cmd)}
}

// answerLine is what the daemon says; all else in nc is typed.
var answerLine = regexp.MustCompile(`^(@\w+ )?(OK|ERR|-|LOST|BYE)( |$)`)

// play types what is typed in a block, and compares what is printed.
func (d *desk) play(b block) {
	d.t.Helper()
	for i, line := range b.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			d.send(command)
			d.inNC = strings.HasPrefix(command, "nc -U ")
		case line == "^C":
			d.interrupt()
		case d.inNC && !answerLine.MatchString(line):
			d.send(line)
		default:
			d.compare(b.first+i, line, d.line())
			if i > 0 && b.lines[i-1] == "QUIT" {
				d.leaveNC()
			}
		}
	}
	d.nothingMore(b)
}

func (d *desk) compare(number int, want, got string) {
	d.t.Helper()
	got, want = usual(got), usual(want)
	if beginning, isCut := strings.CutSuffix(want, "…"); isCut && strings.HasPrefix(got, beginning) {
		return
	}
	if got != want {
		d.t.Fatalf("README line %d, as it is compared:\ngot  %s\nwant %s", number, got, want)
	}
}

// nothingMore has something harmless answered, which must be what comes next.
func (d *desk) nothingMore(b block) {
	d.t.Helper()
	question, answer := "echo that is all", "that is all"
	if d.inNC {
		question, answer = "@all PING", "@all OK"
	}
	d.send(question)
	if got := d.line(); got != answer {
		d.t.Fatalf("README line %d: after the block there is one more line: %s", b.first, got)
	}
}

// interrupt is Ctrl-C for what runs in the shell.
func (d *desk) interrupt() {
	d.t.Helper()
	waitFor(d.t, "nc runs", func() bool { return d.child() != 0 })
	child, err := os.FindProcess(d.child())
	if err == nil {
		err = child.Signal(os.Interrupt)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.leaveNC()
}

// leaveNC waits for nc to end by itself: what is typed before still goes to it.
func (d *desk) leaveNC() {
	d.t.Helper()
	waitFor(d.t, "nc has ended", func() bool { return d.child() == 0 })
	d.inNC = false
}

// child is the process that the shell runs, or 0.
func (d *desk) child() int {
	d.t.Helper()
	text := readFile(d.t, fmt.Sprintf("/proc/%d/task/%[1]d/children", d.cmd.Process.Pid))
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil && strings.TrimSpace(text) != "" {
		d.t.Fatalf("the shell runs more than one process: %s", text)
	}
	return pid
}

var (
	variableField = regexp.MustCompile(`\b(lease|fence|ttl|deadline|pid|since|rtt|held|retry|slot)=\S+`)
	variablePID   = regexp.MustCompile(`\(pid \d+\)`)
	variableCell  = regexp.MustCompile(`^(\d\d+|[\d.]+(ms|s|m|h)|\d/\d)$`)
	variableTime  = regexp.MustCompile(`\b(another|for) [\d.]+m?s\b`)
	variablePlace = regexp.MustCompile(`\b(unix:\S+|10\.0\.0\.\d:6379)`)
	connections   = regexp.MustCompile(`^connections \d+`) // one may be closing
)

// usual is a line without what differs each time: numbers, times, secrets, and
// where it is run. The README's host is web3, and its user alice.
func usual(line string) string {
	host, _ := os.Hostname()
	line = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(line, "web3")
	if u, err := user.Current(); err == nil {
		line = regexp.MustCompile(`\b`+regexp.QuoteMeta(u.Username)+`\b`).ReplaceAllString(line, "alice")
	}
	line = variableField.ReplaceAllString(line, "$1=*")
	line = variablePID.ReplaceAllString(line, "(pid *)")
	line = variableTime.ReplaceAllString(line, "$1 *")
	line = variablePlace.ReplaceAllString(line, "*")
	line = connections.ReplaceAllString(line, "connections *")
	cells := strings.Fields(line)
	for i, cell := range cells {
		if variableCell.MatchString(cell) {
			cells[i] = "*"
		}
	}
	return strings.Join(cells, " ")
}

// The README's config is a good one.
func TestReadmeConfig(t *testing.T) {
	config := filepath.Join(t.TempDir(), "redlockd.hcl")
	b := only(t, "config")
	writeFile(t, config, b.text())
	p := start(t, "", filepath.Join(binaries, "redlockd"), "validate", "-config", config)
	code := p.wait()
	stdout, stderr := p.rest()
	if code != 0 || !strings.HasPrefix(stdout, "ok: 5 nodes, 3 needed for a lock") {
		t.Errorf("validate ends with %d and says:\n%s\n%s", code, stdout, stderr)
	}
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "groupadd --system redlock") { // this machine may lack it
			t.Errorf("validate warns: %s", line)
		}
	}
}

// The README names what every direct dependency is for.
func TestReadmeNamesDependencies(t *testing.T) {
	list := exec.Command("go", "list", "-m", "-f", "{{if not (or .Main .Indirect)}}{{.Path}}{{end}}", "all")
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(output))
	if len(modules) == 0 {
		t.Error("go list names no direct dependency")
	}
	for _, module := range modules {
		if !strings.Contains(string(text), "| ["+module+"](") {
			t.Errorf("the README does not say what %s is for", module)
		}
	}
}
