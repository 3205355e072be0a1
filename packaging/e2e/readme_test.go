//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// redlockd -dev prints what the README shows. Its command is alone in a block.
func TestReadmeDev(t *testing.T) {
	t.Parallel()
	h, _, greeting := dev(t)
	blocks := blocksOf(t, readmeFile)
	for i, b := range blocks {
		if b.text() != "go run ./cmd/redlockd -dev\n" {
			continue
		}
		printed := blocks[i+1]
		said := strings.ReplaceAll(strings.Trim(greeting, "\n"), h.dir, "/home/alice/redlockd")
		if said+"\n" != printed.text() {
			t.Errorf("%s:\ngot  %s\nwant %s", &printed, said, printed.text())
		}
		return
	}
	t.Error("the README has no block with nothing but redlockd -dev")
}

// The README's config is valid.
func TestReadmeConfig(t *testing.T) {
	config := filepath.Join(t.TempDir(), "redlockd.hcl")
	b := only(t, readmeFile, "hcl", "quorum {")
	writeFile(t, config, b.text())
	p := start(t, "", filepath.Join(binaries, "redlockd"), "validate", "-config", config)
	code := p.wait()
	stdout, stderr := p.rest()
	if code != 0 || !strings.HasPrefix(stdout, "ok: 5 nodes, 3 needed for a lock") {
		t.Errorf("validate ends with %d and says:\n%s\n%s", code, stdout, stderr)
	}
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "groupadd --system redlock") && !strings.Contains(line, "/run/redlockd does not exist") { // this machine may lack these
			t.Errorf("validate warns: %s", line)
		}
	}
}

// fiveNodes is the README's section that starts five real nodes, as root.
const fiveNodes = "Five nodes"

func playedAsRoot(b block) bool { return b.page == readmeFile && b.section == fiveNodes }

// The README's section on five real nodes works as written, on a host that has neither the package
// nor its group. The host has its own network, /etc and /run.
func TestReadmeFiveNodes(t *testing.T) {
	t.Parallel() // mostly waits
	d := newLoneHost(t)
	for _, b := range blocksOf(t, readmeFile) {
		switch {
		case !playedAsRoot(b):
		case b.kind == "hcl":
			writeFile(t, filepath.Join(d.etc, "redlockd", "redlockd.hcl"), b.text())
		case b.kind == "console":
			d.play(b)
		}
	}
	if d.shown < 3 {
		t.Errorf("the README shows %d transcripts of five real nodes, expected 3", d.shown)
	}
}

// loneHost is a shell in namespaces of its own, with five redis-servers at 10.0.0.1 to 10.0.0.5,
// and everything else that the README expects of a Linux machine.
type loneHost struct {
	t         *testing.T
	first     *desk
	etc       string // its /etc
	pid       int    // a process in its namespaces
	terminals map[string]*desk
	shown     int
}

const loneHostScript = `set -e
ip link set lo up
for i in 1 2 3 4 5; do
	ip address add 10.0.0.$i/32 dev lo
	mkdir "$1/$i"
	(cd "$1/$i" && exec sh -c "exec ${2/10.0.0.1/10.0.0.$i}") >/dev/null &
done
disown -a
cp -a /etc "$1/etc"
sed -i /^redlock:/d "$1/etc/group"
rm -rf "$1/etc/redlockd"
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
for i in 1 2 3 4 5; do
	until redis-cli -h 10.0.0.$i ping >/dev/null 2>&1; do sleep 0.05; done
done
echo there
exec bash 2>&1`

func newLoneHost(t *testing.T) *loneHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root is needed: it makes a group and mounts")
	}
	for _, program := range []string{"unshare", "nsenter", "ip", "redis-cli"} {
		needProgram(t, program)
	}
	dir := t.TempDir()
	// sudo is not always installed, and root does not need it.
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	server := only(t, readmeFile, "sh", "redis-server --bind 10.0.0.1 ")
	path := "PATH=" + dir + ":" + binaries + ":" + os.Getenv("PATH")
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", loneHostScript, "bash", dir, strings.TrimSpace(server.text()))
	cmd.Env = append(os.Environ(), path)
	h := &loneHost{t: t, etc: filepath.Join(dir, "etc"), terminals: map[string]*desk{}}
	h.first = &desk{process: startCommand(t, cmd)}
	if line := h.first.line(); line != "there" {
		t.Skipf("namespaces and mounts cannot be had: %s %s", line, h.first.stderr.text())
	}
	h.pid = childOf(t, cmd.Process.Pid)
	return h
}

// play types a block. If the block starts a daemon, play waits until the daemon serves and has
// found all five nodes to be new.
func (h *loneHost) play(b block) {
	h.t.Helper()
	d := h.terminal(b)
	d.play(b)
	h.shown++
	if b.lines[len(b.lines)-1] != "$ sudo redlockd" {
		return
	}
	giveUp := time.After(2 * patience)
	for serves, found := false, 0; !serves || found < 5; {
		line, _ := d.nextBefore(giveUp, d.stdout, "that it serves, and that five nodes are in quarantine,")
		serves = serves || strings.Contains(line, "serving: ")
		if strings.Contains(line, "node is in quarantine") {
			found++
		}
	}
}

// terminal returns the terminal of a block, in the namespaces.
func (h *loneHost) terminal(b block) *desk {
	h.t.Helper()
	name := "1"
	if found := terminalLine.FindStringSubmatch(b.before); found != nil {
		name = found[1]
	}
	if name == "1" {
		return h.first
	}
	if h.terminals[name] == nil {
		cmd := exec.Command("nsenter", "--target", fmt.Sprint(h.pid), "--mount", "--net", "--pid", "bash", "-c", "exec bash 2>&1")
		cmd.Env = h.first.cmd.Env
		h.terminals[name] = &desk{process: startCommand(h.t, cmd)}
	}
	return h.terminals[name]
}

// DEPENDENCIES.md states the purpose of every direct dependency.
func TestPageNamesDependencies(t *testing.T) {
	output, err := printed(exec.Command("go", "mod", "edit", "-json")) // go list would look for modules that no build needs
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(output, &file); err != nil {
		t.Fatal(err)
	}
	text := readFile(t, pagePath("DEPENDENCIES.md"))
	var modules []string
	for _, module := range file.Require {
		if !module.Indirect {
			modules = append(modules, module.Path)
		}
	}
	if len(modules) == 0 {
		t.Error("go.mod names no direct dependency")
	}
	for _, module := range modules {
		if !strings.Contains(text, "| ["+module+"](") {
			t.Errorf("DEPENDENCIES.md does not say what %s is for", module)
		}
	}
}
