//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every link of a page to the project's own files and headings has a target, and the README links
// to every page.
func TestPages(t *testing.T) {
	readme := readFile(t, pagePath(readmeFile))
	for _, page := range pageNames(t) {
		if page != readmeFile && !strings.Contains(readme, "](packaging/docs/"+page+")") {
			t.Errorf("the README does not lead to %s", page)
		}
		checkLinks(t, pagePath(page))
	}
	for _, page := range []string{"packaging/CHANGELOG.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"} {
		if !strings.Contains(readme, "]("+page+")") {
			t.Errorf("the README does not lead to %s", page)
		}
		checkLinks(t, filepath.Join("..", "..", page))
	}
}

// The same holds in the packages, which have the pages in one directory.
func TestPackagedPages(t *testing.T) {
	p := needPackages(t)
	root := t.TempDir()
	if output, err := combined(exec.Command("dpkg-deb", "--extract", p.deb(), root)); err != nil {
		t.Skipf("dpkg-deb is not to be had: %v %s", err, output)
	}
	pages, err := filepath.Glob(filepath.Join(root, "usr", "share", "doc", "redlockd", "*.md"))
	if err != nil || len(pages) < 5 {
		t.Fatalf("only the pages %q: %v", pages, err)
	}
	for _, page := range pages {
		checkLinks(t, page)
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

func checkLinks(t *testing.T, page string) {
	t.Helper()
	links := pageLink.FindAllStringSubmatch(readFile(t, page), -1)
	if len(links) == 0 {
		t.Errorf("%s has no links: is their form still understood?", page)
	}
	for _, link := range links {
		file, anchor, target := link[1], link[2], page
		if strings.Contains(file, "://") {
			continue
		}
		if file == "" && anchor == "" {
			t.Errorf("%s: a link is empty", page)
		}
		if file != "" {
			target = filepath.Join(filepath.Dir(page), file)
		}
		if _, err := os.Stat(target); err != nil {
			t.Errorf("%s: the link %s: %v", page, link[0], err)
		} else if anchor != "" && !hasHeading(readFile(t, target), anchor) {
			t.Errorf("%s: the link %s leads to no heading", page, link[0])
		}
	}
}

// hasHeading reports whether a heading has that anchor, as GitHub makes them.
func hasHeading(page, anchor string) bool {
	drop := regexp.MustCompile("[^a-z0-9 -]")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		if "#"+strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
