//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkout is a git repository with a copy of this tree.
type checkout struct {
	t       *testing.T
	dir     string
	through []string // the command that runs packaging/release; empty: none
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	needProgram(t, "git")
	c := &checkout{t: t, dir: filepath.Join(t.TempDir(), "checkout")}
	copyTree(t, filepath.Join("..", ".."), c.dir)
	writeFile(t, filepath.Join(c.dir, ".gitignore"), readFile(t, filepath.Join("..", "..", ".gitignore")))
	c.git("init", "--quiet")
	c.commit()
	return c
}

// git runs git without the settings of this machine and its user.
func (c *checkout) git(args ...string) string {
	c.t.Helper()
	output, err := combined(c.command("git", args...))
	if err != nil {
		c.t.Fatalf("git %q: %v\n%s", args, err, output)
	}
	return strings.TrimSpace(string(output))
}

func (c *checkout) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=alice", "GIT_AUTHOR_EMAIL=alice@localhost",
		"GIT_COMMITTER_NAME=alice", "GIT_COMMITTER_EMAIL=alice@localhost", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	return cmd
}

func (c *checkout) commit() {
	c.t.Helper()
	c.git("add", "--all")
	c.git("commit", "--quiet", "--allow-empty", "--message", "commit")
}

// edit replaces a text in a file.
func (c *checkout) edit(file, old, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, file)
	before := readFile(c.t, path)
	if !strings.Contains(before, old) {
		c.t.Fatalf("%s lacks %q", file, old)
	}
	writeFile(c.t, path, strings.Replace(before, old, text, 1))
}

// release runs packaging/release, which builds everything for two kinds of processors.
func (c *checkout) release(version, dir string) (string, error) {
	var all bytes.Buffer
	argv := append(slices.Clone(c.through), filepath.Join(c.dir, "packaging", "release"), version, dir)
	err := finish(c.command(argv[0], argv[1:]...), &all, &all, time.After(5*commandBound))
	return all.String(), err
}

// refuses checks that there is no release, and no tag, for a reason.
func (c *checkout) refuses(version, why string) {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "refused")
	if output, err := c.release(version, dir); err == nil || !strings.Contains(output, why) {
		c.t.Errorf("packaging/release %s: %v\n%s\nwant a failure with %q", version, err, output, why)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		c.t.Errorf("packaging/release %s left %v, and it failed", version, entries)
	}
}

const changes = "packaging/CHANGELOG.md"

// clientVersions are the files that have the version of a client.
var clientVersions = []string{"client/python/pyproject.toml", "client/node/package.json", "client/ruby/lib/redlockd/version.rb", "client/php/composer.json"}

var versionHeading = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) \((.+)\)$`)

// newestVersion returns the version of the first heading in the list of changes, and the heading.
func newestVersion(t *testing.T) (version, heading string) {
	t.Helper()
	found := versionHeading.FindStringSubmatch(readFile(t, filepath.Join("..", "..", changes)))
	if found == nil {
		t.Fatalf("%s has no heading of a version", changes)
	}
	return found[1], found[0]
}

// The README and the page about the installation name the packages of the newest version.
func TestPagesNameNewestPackage(t *testing.T) {
	version, _ := newestVersion(t)
	for _, page := range []string{readmeFile, "INSTALL.md"} {
		for _, want := range []string{"packaging/package.sh " + version + " ", "/redlockd_" + version + "-1_amd64.deb"} {
			if !strings.Contains(readFile(t, pagePath(page)), want) {
				t.Errorf("%s lacks %q", page, want)
			}
		}
	}
}

// A release needs a version, a dated heading in the list of changes, and a tree without changes.
// A tag stays at its commit.
func TestReleaseRefuses(t *testing.T) {
	c := newCheckout(t)
	version, heading := newestVersion(t)
	c.refuses("v"+version, "wanted such as 1.2.3")
	c.refuses("99.0.0", `no heading "## 99.0.0 (`)
	c.edit(changes, heading, "## 98.0.0 (not released yet)\n\n## 99.0.0 (2026-01-01)")
	c.refuses("99.0.0", "not committed")
	c.commit()
	c.refuses("98.0.0", `no heading "## 98.0.0 (`)
	var old strings.Builder
	for _, file := range clientVersions {
		fmt.Fprintf(&old, "%s has version %q, wanted %q: write it there, and commit\n", file, version, "99.0.0")
	}
	c.refuses("99.0.0", old.String())
	c.git("tag", "--annotate", "--message", "a release", "v99.0.0")
	c.commit()
	c.refuses("99.0.0", "choose the next version")
	if tags := c.git("tag", "--list"); tags != "v99.0.0" {
		t.Errorf("the tags are %q, want only the test's own", tags)
	}
}

// A release is built from the commit that is tagged. It contains what is committed and nothing else,
// and its programs know their version. It has the same bytes as the packages of this tree, although
// it is built in another directory, and on a host with another name.
func TestRelease(t *testing.T) {
	t.Parallel()
	first := needPackages(t)
	c := newCheckout(t)
	version, heading := newestVersion(t)
	c.edit(changes, heading, "## "+packagedVersion+" (2026-01-01)")
	for _, file := range clientVersions {
		c.edit(file, version, packagedVersion)
	}
	c.commit()
	renamed := []string{"unshare", "--map-root-user", "--uts", "sh", "-c", `hostname another-host && exec "$@"`, "sh"}
	if _, err := combined(exec.Command(renamed[0], append(renamed[1:], "true")...)); err == nil {
		c.through = renamed
	} else {
		t.Log("under the same host name: this kernel or container allows no other one")
	}
	out := filepath.Join(t.TempDir(), "out")
	if output, err := c.release(packagedVersion, out); err != nil {
		t.Fatalf("packaging/release: %v\n%s", err, output)
	}
	if head, tagged := c.git("rev-parse", "HEAD"), c.git("rev-parse", "v"+packagedVersion+"^{commit}"); head != tagged {
		t.Errorf("v%s is %s, want %s", packagedVersion, tagged, head)
	}
	checkReleaseSums(t, out, packagedVersion)
	source := strings.Split(inArchive(t, out, "redlockd-"+packagedVersion+"-source.tar.gz", "--list"), "\n")
	for file := range strings.SplitSeq(c.git("ls-files"), "\n") {
		if !slices.Contains(source, "redlockd-"+packagedVersion+"/"+file) {
			t.Errorf("the archive of the source lacks %s", file)
		}
	}
	name := "redlockd-" + packagedVersion + "-linux-" + runtime.GOARCH
	into := t.TempDir()
	inArchive(t, out, name+".tar.gz", "--extract", "--directory", into)
	for program, flag := range map[string]string{"redlock": "--version", "redlockd": "-version"} {
		output, err := printed(exec.Command(filepath.Join(into, name, program), flag))
		if want := program + " " + packagedVersion + "\n"; err != nil || string(output) != want {
			t.Errorf("%s %s prints %q, %v; want %q", program, flag, output, err, want)
		}
	}
	first.checkReproduced(t, out, filepath.Join(into, name))
	again := t.TempDir()
	packClients(t, c.dir, packagedVersion, again)
	for _, client := range clientNames(packagedVersion) {
		if !bytes.Equal(readBytes(t, filepath.Join(out, client)), readBytes(t, filepath.Join(again, client))) {
			t.Errorf("%s: other bytes where it is made for the second time", client)
		}
	}
	notes := readFile(t, filepath.Join(out, "NOTES.md"))
	if !strings.HasPrefix(notes, "## "+packagedVersion+" (") || strings.Count("\n"+notes, "\n## ") != 1 {
		t.Errorf("NOTES.md is not the section of this version:\n%.200s", notes)
	}
}

// checkReproduced checks that the files of package.sh have the same bytes in one of the directories.
func (p packaged) checkReproduced(t *testing.T, dirs ...string) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 7 {
		t.Errorf("got %v, want two programs, two packages, what is in them, the licences, and the checksums", entries)
	}
	for _, entry := range entries {
		if entry.Name() == "SHA256SUMS" {
			continue // that of a release has other files
		}
		first := readBytes(t, filepath.Join(p.dir, entry.Name()))
		if !slices.ContainsFunc(dirs, func(dir string) bool {
			second, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			return err == nil && bytes.Equal(first, second)
		}) {
			t.Errorf("%s: other bytes where it is made for the second time, or none", entry.Name())
		}
	}
}

// checkReleaseSums checks that the files are those of a release, and that their checksums match.
func checkReleaseSums(t *testing.T, out, version string) {
	t.Helper()
	sum := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	sum.Dir = out
	if output, err := combined(sum); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, output)
	}
	var got []string
	for line := range strings.Lines(readFile(t, filepath.Join(out, "SHA256SUMS"))) {
		got = append(got, strings.Fields(line)[1])
	}
	want := append(clientNames(version), "NOTES.md", "redlockd-"+version+"-1.aarch64.rpm", "redlockd-"+version+"-1.x86_64.rpm", "redlockd-"+version+"-linux-amd64.tar.gz",
		"redlockd-"+version+"-linux-arm64.tar.gz", "redlockd-"+version+"-source.tar.gz", "redlockd_"+version+"-1_amd64.deb", "redlockd_"+version+"-1_arm64.deb")
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the files are\n%q, want\n%q", got, want)
	}
}

// clientNames returns the packages of the clients in other languages.
func clientNames(version string) []string {
	return []string{"redlockd-" + version + "-py3-none-any.whl", "redlockd-" + version + ".tar.gz", "redlockd-" + version + ".tgz", "redlockd-" + version + ".gem", "redlockd-php-" + version + ".zip"}
}

// inArchive runs tar on an archive of a release.
func inArchive(t *testing.T, out, archive string, args ...string) string {
	t.Helper()
	output, err := printed(exec.Command("tar", append(args, "--gzip", "--file", filepath.Join(out, archive))...))
	if err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	return string(output)
}
