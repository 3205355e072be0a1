//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A newcomer can type the commands that redlockd -dev prints. They are alone on stdout, between
// blank lines.
func TestDevSaysWhatToType(t *testing.T) {
	_, d, greeting := dev(t)
	found := regexp.MustCompile(`\nor:  (nc -U \S+) +then type:  (.+)\n$`).FindStringSubmatch(greeting)
	if found == nil {
		t.Fatalf("it names no command and nothing to type: %s", greeting)
	}
	if !strings.HasPrefix(greeting, "\nredlockd -dev: these locks exist only in this process") {
		t.Errorf("it does not say what these locks are worth, after a blank line: %s", greeting)
	}
	if !strings.Contains(greeting, "\n\n  export REDLOCK_SOCKET="+filepath.Join(d.cmd.Dir, "redlockd.sock")+"\n") {
		t.Errorf("it does not say what to export: %s", greeting)
	}
	n := &terminal{start(t, d.cmd.Dir, strings.Fields(found[1])...)}
	n.expect(found[2], "OK lock=demo lease=")
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, expected 0", code)
	}
}

// TestTypedSession takes one lock, from LOCK to UNLOCK, as people type it.
func TestTypedSession(t *testing.T) {
	together(t)
	h, _, _ := dev(t)
	first, second := h.nc(), h.nc()
	granted := first.expect("LOCK nightly-backup wait=5s note=by%20hand", "OK lock=nightly-backup lease=")
	fence := number(t, granted, "fence")
	if fence <= 0 {
		t.Errorf("fence=%d, expected a fencing token", fence)
	}
	checked := first.expect("check nightly-backup", "OK lock=nightly-backup")
	if field(checked, "lease") != field(granted, "lease") || number(t, checked, "fence") != fence {
		t.Errorf("CHECK shows another lease:\n%s\n%s", granted, checked)
	}
	deadline, now := number(t, checked, "deadline"), bootTime(t).Milliseconds()
	if left := deadline - now; left <= 0 || left > 10_000 {
		t.Errorf("the deadline is %d ms away, expected 1 to 10000", left)
	}

	held := second.expect("LOCK nightly-backup wait=0", "ERR HELD lock=nightly-backup ttl=")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if field(held, "host") != host || number(t, held, "pid") != int64(first.cmd.Process.Pid) {
		t.Errorf("HELD does not name the holder: %s; expected host %s, pid %d", held, host, first.cmd.Process.Pid)
	}
	if listed := second.lines("LIST"); len(listed) != 2 || field(listed[0], "note") != "by%20hand" || field(listed[0], "lease") != "" {
		t.Errorf("LIST answers %q, expected one lease, with its note and without its secret", listed)
	}
	if who := second.lines("WHO nightly-backup"); len(who) != 2 || field(who[0], "held") == "" {
		t.Errorf("WHO answers %q, expected one holder", who)
	}
	second.expect("UNLOCK nightly-backup", "ERR NOTHELD lock=nightly-backup : ")
	first.expect("UNLOCK nightly-backup", "OK lock=nightly-backup")
	next := second.expect("LOCK nightly-backup wait=0", "OK lock=nightly-backup")
	if number(t, next, "fence") <= fence {
		t.Errorf("the next grant has no larger fencing token:\n%s\n%s", granted, next)
	}
}

// The daemon answers all requests that a script sends in one write. When the connection closes, it
// releases the locks.
func TestPrintfIntoNC(t *testing.T) {
	h, _, _ := dev(t)
	const script = `printf 'LOCK a wait=0\nCHECK a\nLOCK a\nLOCK b hold=ttl ttl=20s\n' | nc -N -U "$1"`
	p := start(t, h.dir, "sh", "-c", script, "sh", h.socket)
	if code := p.wait(); code != 0 {
		t.Errorf("nc ends with %d, expected 0", code)
	}
	for _, want := range []string{"OK lock=a ", "OK lock=a ", "ERR ALREADY lock=a ", "OK lock=b "} {
		if got := p.line(); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if line, more := p.next(p.stdout); more {
		t.Errorf("one more line than requests: %s", line)
	}
	other := h.nc()
	other.expect("LOCK a wait=5s", "OK lock=a")
	other.expect("LOCK b wait=0", "ERR HELD lock=b")
}

// The daemon's error names the word that it does not understand. The connection stays usable.
func TestWrongWords(t *testing.T) {
	h, _, _ := dev(t)
	n := h.nc()
	for _, c := range []struct{ line, want string }{
		{"LOC a", "ERR VERB : "},
		{"LOCK", "ERR SYNTAX : "},
		{"LOCK a b", "ERR SYNTAX : "},
		{"LOCK a=b=c x", "ERR "},
		{"LOCK a ttl=10", "ERR OPTION lock=a : "},
		{"LOCK a ttl=1h", "ERR OPTION lock=a : "},
		{"LOCK a ttl=fast", "ERR OPTION "},
		{"LOCK a colour=red", "ERR OPTION "},
		{"LOCK a wait=1 wait=2", "ERR OPTION "},
		{"LOCK redlockd:node", "ERR NAME "},
		{"LOCK " + strings.Repeat("n", 201), "ERR NAME "},
		{"LOCK a%2", "ERR NAME "},
		{"LOCK " + strings.Repeat("n", 5000), "ERR TOOLONG : "},
		{"LOCK a mode=sharp", "ERR OPTION "},
		{"LOCK a mode=shared slots=2", "ERR OPTION lock=a : "},
		{"LOCK a,b slots=2", "ERR OPTION "},
		{"LOCK a,a", "ERR "},
		{"RESUME a lease=x", "ERR NOTHELD lock=a : "},
		{"UNLOCK a", "ERR NOTHELD lock=a : "},
		{"EXTEND a", "ERR NOTHELD lock=a : "},
		{"@t1 PING", "@t1 OK"},
		{"@tag-with-dashes PING", "ERR SYNTAX "},
		{"", ""}, // no answer
		{"PING", "OK"},
	} {
		if c.line == "" {
			n.send("")
			continue
		}
		n.expect(c.line, c.want)
	}
	if listed := n.lines("LIST"); len(listed) != 1 {
		t.Errorf("what was refused left something behind: %q", listed)
	}
}

// redlockd validate accepts valid configs, and reports where the faults of others are.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.hcl"), filepath.Join(dir, "bad.hcl")
	writeFile(t, good, `quorum {
  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "10.0.0.2:6379" }
  node "c" { address = "10.0.0.3:6379" }
}`)
	writeFile(t, bad, `quorum {
  max_ttl = 30
  node "a" { address = "10.0.0.1" }
  nodee "b" { address = "10.0.0.2:6379" }
}
lease { ttl = "1ms" }`)
	for _, c := range []struct {
		config string
		code   int
		stdout string
		stderr []string
	}{
		{good, 0, "ok: 3 nodes, 2 needed for a lock", nil},
		{filepath.Join("..", "redlockd.hcl"), 0, "ok: 5 nodes, 3 needed for a lock", nil},
		{bad, 1, "", []string{bad + ":2", bad + ":3", bad + ":4", bad + ":6"}},
		{filepath.Join(dir, "none.hcl"), 1, "", []string{"none.hcl"}},
	} {
		p := start(t, "", filepath.Join(binaries, "redlockd"), "validate", "-config", c.config)
		if code := p.wait(); code != c.code {
			t.Errorf("%s: exit code %d, expected %d", c.config, code, c.code)
		}
		stdout, stderr := p.rest()
		if !strings.HasPrefix(stdout, c.stdout) {
			t.Errorf("%s: prints %q, expected %q", c.config, stdout, c.stdout)
		}
		for _, want := range c.stderr {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: no fault at %s in:\n%s", c.config, want, stderr)
			}
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
