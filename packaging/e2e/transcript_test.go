//go:build linux

package e2e

import (
	"fmt"
	"io/fs"
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

// block is a fenced block of a page. Its kind, its prompts and the line before it, which readers
// see, determine how it is tested:
//
//   - "Terminal 2:" before a console block: its lines are typed in that terminal. Without such a
//     line it is terminal 1. If the terminal runs a program such as nc, that goes on in the
//     terminal's next block.
//   - "new nodes" in that line: the terminal is on a host with five new real nodes.
//   - The prompts web1$ and web2$: two hosts that share five real nodes.
//   - Everything else runs with redlockd -dev.
type block struct {
	page    string
	section string // the heading above it
	before  string // the last line of text before it
	kind    string // console, hcl, go …
	first   int    // line number of its first line
	lines   []string
}

func (b *block) text() string { return strings.Join(b.lines, "\n") + "\n" }

func (b *block) String() string { return fmt.Sprintf("%s line %d", b.page, b.first) }

const readmeFile = "README.md"

// pagePath returns the path of a page: the README is at the top of the tree, the others are in
// docs.
func pagePath(name string) string {
	if name == readmeFile {
		return filepath.Join("..", "..", name)
	}
	return filepath.Join("..", "docs", name)
}

// pageNames returns the README and all pages.
func pageNames(t *testing.T) []string {
	t.Helper()
	names := []string{readmeFile}
	docs := os.DirFS(pagePath("."))
	for _, pattern := range []string{"*.md", "design/*.md"} {
		found, err := fs.Glob(docs, pattern)
		if err != nil || len(found) < 4 {
			t.Fatalf("%s: only the pages %q: %v", pattern, found, err)
		}
		names = append(names, found...)
	}
	return names
}

// blocksOf returns all blocks of a page.
func blocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	var open *block
	section, before := "", ""
	for i, line := range strings.Split(readFile(t, pagePath(page)), "\n") {
		kind, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{page: page, section: section, before: before, kind: kind, first: i + 2}
		case isFence:
			blocks, open, before = append(blocks, *open), nil, ""
		case open != nil:
			open.lines = append(open.lines, line)
		case strings.HasPrefix(line, "#"):
			section, before = strings.TrimLeft(line, "# "), ""
		case line != "":
			before = line
		}
	}
	return blocks
}

// only returns the block of a page that has this kind and these words. There must be exactly one.
func only(t *testing.T, page, kind, words string) block {
	t.Helper()
	var found []block
	for _, b := range blocksOf(t, page) {
		if b.kind == kind && strings.Contains(b.text(), words) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of the kind %q with %q, expected one", page, len(found), kind, words)
	}
	return found[0]
}

var (
	terminalLine = regexp.MustCompile(`\bTerminal (\d)\b`)
	hostPrompt   = regexp.MustCompile(`^(web\d)\$ `)
	scriptName   = regexp.MustCompile(`^#!/bin/sh\n# (\w+\.sh) `)
)

// TestTranscripts runs the terminal sessions of all pages in order, and compares the output.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	needNC(t)
	shown := 0
	for _, page := range pageNames(t) {
		blocks := blocksOf(t, page)
		for _, b := range blocks {
			if isPlayed(b) {
				shown++
			}
		}
		t.Run(page, func(t *testing.T) {
			s := &stage{t: t, terminals: map[string]*desk{}}
			for _, b := range blocks {
				if isPlayed(b) {
					s.play(b)
				}
				if name := scriptName.FindStringSubmatch(b.text()); name != nil {
					writeFile(t, filepath.Join(s.dev().dir, name[1]), b.text())
				}
			}
		})
	}
	if shown < 12 {
		t.Errorf("the pages show only %d transcripts: is their form still understood?", shown)
	}
}

func isPlayed(b block) bool { return b.kind == "console" && !playedAsRoot(b) }

// stage has the hosts and terminals of one page.
type stage struct {
	t         *testing.T
	devHost   *host
	fresh     *host
	hosts     []*host
	terminals map[string]*desk
}

// dev returns the host with redlockd -dev. Its directory shows the packaging folder of the
// checkout.
func (s *stage) dev() *host {
	if s.devHost == nil {
		s.devHost, _, _ = dev(s.t)
		checkout, err := filepath.Abs("..")
		if err == nil {
			err = os.Symlink(checkout, filepath.Join(s.devHost.dir, "packaging"))
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return s.devHost
}

// newNodes returns the host whose five nodes are new.
func (s *stage) newNodes() *host {
	if s.fresh == nil {
		s.fresh = newHost(s.t, redlocktest.StartRedis(s.t, 5))
		s.fresh.serve()
	}
	return s.fresh
}

// web returns one of the hosts web1 and web2, which share five nodes.
func (s *stage) web(name string) *host {
	if s.hosts == nil {
		cluster := redlocktest.StartRedis(s.t, 5)
		cluster.Admit(s.t)
		for range 2 {
			h := newHost(s.t, cluster)
			h.serve()
			s.hosts = append(s.hosts, h)
		}
	}
	return s.hosts[name[len(name)-1]-'1']
}

// terminal returns the terminal of that name on a host, and starts it when it is first used.
func (s *stage) terminal(name string, on func() *host) *desk {
	if s.terminals[name] == nil {
		s.terminals[name] = newDesk(s.t, on())
	}
	return s.terminals[name]
}

// play types the commands of a block.
func (s *stage) play(b block) {
	s.t.Helper()
	if hostPrompt.MatchString(b.lines[0]) {
		s.playHosts(b)
		return
	}
	name := "1"
	if found := terminalLine.FindStringSubmatch(b.before); found != nil {
		name = found[1]
	}
	if strings.Contains(b.before, "new nodes") {
		for i := range b.lines {
			b.lines[i] = strings.ReplaceAll(b.lines[i], "/run/redlockd/redlockd.sock", s.newNodes().socket)
		}
		s.terminal("new "+name, s.newNodes).play(b)
		return
	}
	s.terminal(name, s.dev).play(b)
}

// playHosts plays a block with the prompts of two hosts: for each prompt, the input of one terminal
// and its output.
func (s *stage) playHosts(b block) {
	s.t.Helper()
	var d *desk
	part := b
	part.lines = nil
	flush := func() {
		if d != nil && len(part.lines) > 0 {
			d.play(part)
		}
	}
	for i, line := range b.lines {
		if found := hostPrompt.FindStringSubmatch(line); found != nil {
			flush()
			d = s.terminal(found[1], func() *host { return s.web(found[1]) })
			part.first, part.lines = b.first+i, nil
			line = "$ " + strings.TrimPrefix(line, found[0])
			if line == "$ ^C" {
				line = "^C"
			}
		}
		part.lines = append(part.lines, line)
	}
	flush()
}

// desk is a terminal of a page: a shell that may run nc.
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

// answerLine matches lines from the daemon. All other lines in nc are input.
var answerLine = regexp.MustCompile(`^(@\w+ )?(OK|ERR|-|LOST|BYE)( |$)`)

// play types the input of a block, and compares the output.
func (d *desk) play(b block) {
	d.t.Helper()
	running := false // a command goes on after the end of the block
	for i, line := range b.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			d.send(command)
			d.inNC = strings.HasPrefix(command, "nc -U ")
			running = strings.Contains(command, "sleep 1h") || command == "sudo redlockd"
		case line == "^C":
			d.interrupt()
			running = false
		case d.inNC && !answerLine.MatchString(line):
			d.send(line)
		default:
			d.compare(b, i, line, d.line())
			if i > 0 && b.lines[i-1] == "QUIT" {
				d.leaveNC()
			}
		}
	}
	if !running {
		d.nothingMore(b)
	}
}

func (d *desk) compare(b block, i int, want, got string) {
	d.t.Helper()
	got, want = usual(got), usual(want)
	if beginning, isCut := strings.CutSuffix(want, "…"); isCut && strings.HasPrefix(got, beginning) {
		return
	}
	if got != want {
		d.t.Fatalf("%s line %d, as it is compared:\ngot  %s\nwant %s", b.page, b.first+i, got, want)
	}
}

// nothingMore sends a harmless request, whose answer must be the next line.
func (d *desk) nothingMore(b block) {
	d.t.Helper()
	question, answer := "echo that is all", "that is all"
	if d.inNC {
		question, answer = "@all PING", "@all OK"
	}
	d.send(question)
	if got := d.line(); got != answer {
		d.t.Fatalf("%s: after the block there is one more line: %s", &b, got)
	}
}

// interrupt presses Ctrl-C: everything that the shell runs gets SIGINT, as from a terminal.
func (d *desk) interrupt() {
	d.t.Helper()
	waitFor(d.t, "a command runs", func() bool { return d.child() != 0 })
	for pid := d.child(); pid != 0; pid = childOf(d.t, pid) {
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Signal(os.Interrupt)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	d.leaveNC()
}

// leaveNC waits until nc has ended, because nc still reads the input until then.
func (d *desk) leaveNC() {
	d.t.Helper()
	waitFor(d.t, "the command has ended", func() bool { return d.child() == 0 })
	d.inNC = false
}

// child returns the pid of the process that the shell runs, or 0.
func (d *desk) child() int {
	d.t.Helper()
	return childOf(d.t, d.cmd.Process.Pid)
}

// childOf returns the pid of a process's only child, of any of its threads, or 0.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, thread := range threads {
		children, _ := os.ReadFile(thread) // if the thread or process has ended, there are no children
		text += string(children)
	}
	if strings.TrimSpace(text) == "" {
		return 0
	}
	child, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatalf("process %d runs more than one process: %s", pid, text)
	}
	return child
}

var (
	variableField = regexp.MustCompile(`\b(lease|fence|ttl|deadline|pid|since|rtt|held|retry|slot)=\S+`)
	variablePID   = regexp.MustCompile(`\(pid \d+\)`)
	variableCell  = regexp.MustCompile(`^(\d\d+|[\d.]+(ms|s|m|h)|\d/\d)$`)
	variableTime  = regexp.MustCompile(`\b(another|for) [\d.]+m?s\b`)
	variablePlace = regexp.MustCompile(`\b(unix:\S+|10\.0\.0\.\d:6379)`)
	connections   = regexp.MustCompile(`^connections \d+`) // an old connection may still be closing
	anyHost       = regexp.MustCompile(`\bweb\d\b`)
)

// usual replaces the parts of a line that differ each time: numbers, times, secrets, and the host.
// The hosts of the pages are web1 to web3, and their user is alice.
func usual(line string) string {
	host, _ := os.Hostname()
	line = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(line, "web3")
	line = anyHost.ReplaceAllString(line, "web*")
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
