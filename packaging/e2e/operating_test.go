//go:build linux

package e2e

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The operator's page has the README's rights for the Redis user.
func TestOperating(t *testing.T) {
	page := readFile(t, filepath.Join("..", "OPERATING.md"))
	acl := only(t, "acl")
	if rights := strings.TrimSpace(strings.TrimPrefix(acl.text(), "ACL SETUSER")); !strings.Contains(page, "\nuser "+rights+"\n") {
		t.Errorf("OPERATING.md has other rights than README line %d: wanted\nuser %s", acl.first, rights)
	}
}

// A redis-server starts with the redis.conf and the users.acl of the operator's page, as
// they are but for the file's place.
func TestOperatingRedisConf(t *testing.T) {
	page := readFile(t, filepath.Join("..", "OPERATING.md"))
	dir := t.TempDir()
	users, conf := filepath.Join(dir, "users.acl"), filepath.Join(dir, "redis.conf")
	writeFile(t, users, pageBlock(t, page, "user default off"))
	writeFile(t, conf, strings.Replace(pageBlock(t, page, "aclfile "), "/etc/redis/users.acl", users, 1))
	server := exec.Command("redis-server", conf, "--port", "0", "--unixsocket", filepath.Join(dir, "s"))
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = server.Stdout
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	var said []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), "eady to accept connections") {
			return
		}
		said = append(said, lines.Text())
	}
	t.Errorf("redis-server ended:\n%s", strings.Join(said, "\n"))
}

// pageBlock is the fenced block of a page that has these words.
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

// What an operator's alerts go by is in STATUS.
func TestOperatingAlerts(t *testing.T) {
	h, _, _ := dev(t)
	status := h.nc().lines("STATUS")
	page := readFile(t, filepath.Join("..", "OPERATING.md"))
	for _, name := range []string{"spare", "lost", "clock_jumps", "withdrawals", "counter_losses"} {
		if field(status[len(status)-1], name) == "" || !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s: in STATUS %q, and wanted in OPERATING.md", name, status[len(status)-1])
		}
	}
}
