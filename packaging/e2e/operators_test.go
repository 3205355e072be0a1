//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Redis loads its append-only file with the rights of the user default, and drops transactions that
// it may not execute: a vote is one. With the users of the page, a node with durable = true keeps
// its votes over a restart.
func TestNodesUsersKeepVotes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	say, stop := nodesRedis(t, dir, "--appendonly", "yes", "--appendfsync", "always")
	say("MULTI", "+OK")
	say("SET a 1", "+QUEUED")
	say("SET b 2", "+QUEUED")
	say("EXEC", "*2", "+OK", "+OK")
	stop()
	say, _ = nodesRedis(t, dir, "--appendonly", "yes", "--appendfsync", "always")
	say("EXISTS a b", ":2")
}

// nodesRedis starts a redis-server with the page's config and its data in dir. say sends
// commands as the page's admin.
func nodesRedis(t *testing.T, dir string, args ...string) (say func(command string, want ...string), stop func()) {
	t.Helper()
	page := readFile(t, pagePath("NODES.md"))
	users, conf, socket := filepath.Join(dir, "users.acl"), filepath.Join(dir, "redis.conf"), filepath.Join(dir, "s")
	writeFile(t, users, pageBlock(t, page, "user default off"))
	writeFile(t, conf, strings.Replace(pageBlock(t, page, "aclfile "), "/etc/redis/users.acl", users, 1))
	server := exec.Command("redis-server", append([]string{conf, "--port", "0", "--unixsocket", socket, "--dir", dir}, args...)...)
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = server.Stdout
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	t.Cleanup(stop)
	var said []string
	output.(*os.File).SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.Contains(lines.Text(), "eady to accept connections") {
		said = append(said, lines.Text())
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("%v; redis-server said:\n%s", err, strings.Join(said, "\n"))
	}
	t.Cleanup(func() { conn.Close() })
	answers := bufio.NewScanner(conn)
	say = func(command string, want ...string) {
		t.Helper()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "%s\r\n", command)
		for _, line := range want {
			if answers.Scan(); answers.Text() != line {
				t.Fatalf("%s: redis-server answered %q (%v), want %q", command, answers.Text(), answers.Err(), line)
			}
		}
	}
	say("AUTH admin ANOTHER", "+OK")
	return say, stop
}

// pageBlock returns the fenced block of a page that has these words.
func pageBlock(t *testing.T, page, words string) string {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)```\n").FindAllStringSubmatch(page, -1) {
		if strings.Contains(block[1], words) {
			return block[1]
		}
	}
	t.Fatalf("no block with %q", words)
	return ""
}

// The page derives the units of a second fleet from the packaged ones. The two fleets share only
// the program and its user.
func TestInstallSecondFleet(t *testing.T) {
	page := readFile(t, pagePath("INSTALL.md"))
	script, _, found := strings.Cut(pageBlock(t, page, "for unit in socket service"), "\ndone\n")
	if !found {
		t.Fatal("the page has no loop that copies the units")
	}
	dir := t.TempDir()
	script = strings.NewReplacer("/usr/lib/systemd/system/", "../../systemd/", "/etc/systemd/system/", dir+"/", "sudo ", "").Replace(script) + "\ndone"
	if output, err := combined(exec.Command("sh", "-c", script)); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for unit, want := range map[string][]string{
		"socket": {"ListenStream=/run/redlockd-b/redlockd.sock", "FileDescriptorName=redlockd", "SocketGroup=redlock"},
		"service": {"Requires=redlockd-b.socket", "After=redlockd-b.socket network-online.target nss-user-lookup.target dbus.service", "Also=redlockd-b.socket",
			"ExecStart=/usr/sbin/redlockd -config /etc/redlockd-b/redlockd.hcl", "RuntimeDirectory=redlockd-b", "User=redlockd"},
	} {
		lines := strings.Split(readFile(t, filepath.Join(dir, "redlockd-b."+unit)), "\n")
		for _, line := range want {
			if !slices.Contains(lines, line) {
				t.Errorf("redlockd-b.%s lacks %s", unit, line)
			}
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "#") && regexp.MustCompile(`/redlockd/|redlockd\.(socket|service)`).MatchString(line) {
				t.Errorf("redlockd-b.%s has what is the first fleet's: %s", unit, line)
			}
		}
	}
}

// The log texts on the page are prefixes of texts that the daemon logs.
func TestIncidentsLogTexts(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("../../daemon", func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			source.WriteString(readFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(readFile(t, pagePath("INCIDENTS.md")), "\n## What to alert on\n")
	page, _, _ = strings.Cut(page, "\n## ")
	found, code := 0, regexp.MustCompile("`[^`]*`")
	for line := range strings.Lines(page) {
		when, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || !strings.Contains(when, "in the log") {
			continue
		}
		for _, text := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(code.ReplaceAllString(when, ""), -1) {
			found++
			if !strings.Contains(source.String(), `"`+text[1]) {
				t.Errorf("the page has %q in the log, and no message begins so", text[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d texts: are they still found?", found)
	}
}
