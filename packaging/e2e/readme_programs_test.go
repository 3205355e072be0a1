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

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The README's program with package client builds, and does what it says.
func TestReadmeClientProgram(t *testing.T) {
	program := buildProgram(t, "client")
	h, _, _ := dev(t)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket)
	output, err := cmd.CombinedOutput()
	if err != nil || string(output) != "holding nightly-backup\n" {
		t.Errorf("the program ends with %v and prints:\n%s", err, output)
	}
}

// So does the one with package redlock, with five real nodes.
func TestReadmeLibraryProgram(t *testing.T) {
	program := buildProgram(t, "library")
	cluster := redlocktest.StartRedis(t, 5, redlocktest.TCP())
	var addresses []string
	for _, server := range cluster.Servers {
		addresses = append(addresses, server.Addr())
	}
	output, err := exec.Command(program, addresses...).CombinedOutput()
	if err != nil || string(output) != "done\n" {
		t.Errorf("the program ends with %v and prints:\n%s", err, output)
	}
	awaitKeys(t, cluster.Servers)
}

// buildProgram builds a Go program of the README as if its file were in this
// module: an overlay puts it there.
func buildProgram(t *testing.T, name string) (binary string) {
	t.Helper()
	b := only(t, "program: "+name)
	dir := t.TempDir()
	source, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	writeFile(t, source, b.text())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "readme"+name, "main.go"): source,
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, overlay, string(replace))
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", binary, "./readme"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("README line %d: the program does not build: %v\n%s", b.first, err, output)
	}
	return binary
}

// A Redis user with the README's rights is enough for redlockd, with a password
// from a file.
func TestReadmeRedisUser(t *testing.T) {
	needNC(t)
	acl := only(t, "acl")
	cluster := redlocktest.StartRedis(t, 3)
	var nodes strings.Builder
	for _, server := range cluster.Servers {
		words := strings.Fields(strings.Replace(acl.text(), ">PASSWORD", ">wonderland", 1))
		if reply, err := server.Do(words...); err != nil || reply.Err != nil {
			t.Fatalf("README line %d: Redis answers %v %v", acl.first, reply.Err, err)
		}
		fmt.Fprintf(&nodes, "node %q {\n address = %q\n username = \"redlockd\"\n password_file = \"secret\"\n}\n", server.Name(), server.Addr())
	}
	h := newHost(t, cluster)
	writeFile(t, filepath.Join(h.dir, "secret"), "wonderland\n")
	writeFile(t, h.config, fmt.Sprintf("quorum {\n%s}\nsocket { path = %q }\n", &nodes, h.socket))
	h.serve()
	n, other := h.nc(), h.nc()
	if spare(n) != 1 {
		t.Fatalf("not all nodes are ready: %q", n.lines("STATUS"))
	}
	n.expect("LOCK job", "OK lock=job")
	other.expect("LOCK job wait=0", "ERR HELD lock=job")
	n.expect("EXTEND job ttl=20s", "OK lock=job")
	if who := other.lines("WHO job"); len(who) != 2 {
		t.Errorf("WHO answers %q, expected one holder", who)
	}
	n.expect("UNLOCK job", "OK lock=job")
	for _, server := range cluster.Servers {
		noDenial(t, server)
	}
}

// noDenial looks whether Redis refused something that redlockd goes on without.
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
