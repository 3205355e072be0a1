//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The programs of the README and of CLIENTS.md that use package client build and work as described.
func TestPageClientPrograms(t *testing.T) {
	t.Parallel()
	for _, page := range []string{readmeFile, "CLIENTS.md"} {
		t.Run(page, func(t *testing.T) { runProgram(t, page) })
	}
}

func runProgram(t *testing.T, page string) {
	program := buildProgram(t, page)
	h, _, _ := dev(t)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket)
	output, err := combined(cmd)
	if err != nil || string(output) != "holding nightly-backup\n" {
		t.Errorf("the program ends with %v and prints:\n%s", err, output)
	}
}

// buildProgram builds the Go program of a page. An overlay puts its file into this module.
func buildProgram(t *testing.T, page string) (binary string) {
	t.Helper()
	const folder = "pageprogram"
	b := only(t, page, "go", "client.Dial(")
	text := b.text()
	if page == readmeFile { // it shows the body of a function
		text = "package main\n\nimport (\n\"context\"\n\"fmt\"\n\"log\"\n\n\"github.com/redlockd/redlockd/client\"\n)\n\n" +
			"func main() {\nif err := run(context.Background()); err != nil {\nlog.Fatal(err)\n}\n}\n\n" +
			"func run(ctx context.Context) error {\n" + text + "}\n"
	}
	dir := t.TempDir()
	source, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	writeFile(t, source, text)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, folder, "main.go"): source,
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, overlay, string(replace))
	build := goCommand("build", "-overlay", overlay, "-o", binary, "./"+folder)
	if output, err := combined(build); err != nil {
		t.Fatalf("%s: the program does not build: %v\n%s", &b, err, output)
	}
	return binary
}

// redisUser returns the block of NODES.md's users.acl for the user of redlockd.
func redisUser(t *testing.T) block {
	t.Helper()
	b := only(t, "NODES.md", "", "user redlockd on ")
	for i, line := range b.lines {
		if user, found := strings.CutPrefix(line, "user redlockd "); found {
			b.first, b.lines = b.first+i, []string{"ACL SETUSER redlockd " + user}
			return b
		}
	}
	t.Fatalf("%s: no line of the user redlockd", &b)
	return b
}

// durableUser returns the block for a node with durable = true.
func durableUser(t *testing.T) block {
	t.Helper()
	return only(t, "NODES.md", "", "+acl|dryrun")
}

// setUser sets the user as the page says.
func setUser(t *testing.T, server *redlocktest.Server, acl block) {
	t.Helper()
	words := strings.Fields(strings.Replace(acl.text(), ">PASSWORD", ">wonderland", 1))
	if reply, err := server.Do(words...); err != nil || reply.Err != nil {
		t.Fatalf("%s: Redis answers %v %v", &acl, reply.Err, err)
	}
}

// noDenial checks that Redis has refused nothing, even if redlockd goes on without it.
func noDenial(t *testing.T, server *redlocktest.Server) {
	t.Helper()
	reply, err := server.Do("ACL", "LOG")
	if err != nil || reply.Err != nil {
		t.Fatal(err, reply.Err)
	}
	for _, entry := range reply.Array {
		t.Errorf("node %s denied something: %v", server.Name(), entry)
	}
}
