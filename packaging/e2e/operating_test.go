//go:build linux

package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The operator's page has the README's rights for the Redis user, and its links lead
// somewhere.
func TestOperating(t *testing.T) {
	page := readFile(t, filepath.Join("..", "OPERATING.md"))
	acl := only(t, "acl")
	if rights := strings.TrimSpace(strings.TrimPrefix(acl.text(), "ACL SETUSER")); !strings.Contains(page, "\nuser "+rights+"\n") {
		t.Errorf("OPERATING.md has other rights than README line %d: wanted\nuser %s", acl.first, rights)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`).FindAllStringSubmatch(page, -1) {
		file, anchor, target := link[1], link[2], page
		if file != "" {
			target = readFile(t, filepath.Join("..", file))
		}
		if anchor != "" && !hasHeading(target, anchor) {
			t.Errorf("the link %s leads to no heading", link[0])
		}
	}
}

// hasHeading tells whether a heading has that anchor, as GitHub makes them.
func hasHeading(page, anchor string) bool {
	drop := regexp.MustCompile("[^a-z0-9 -]")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		if "#"+strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
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
