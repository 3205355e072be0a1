//go:build linux

package e2e

import (
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// clientPackage returns the path of a package, made as packaging/release makes it. Its name has VERSION.
func clientPackage(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(binaries, "clients")
	clientsPacked.Do(func() { packClients(t, filepath.Join("..", ".."), clientVersion(t), dir) })
	return filepath.Join(dir, strings.ReplaceAll(name, "VERSION", clientVersion(t)))
}

var clientsPacked sync.Once

// packClients packs the clients of a tree, with the date of the commits of newCheckout.
func packClients(t *testing.T, tree, version, into string) {
	t.Helper()
	pack := goCommand("run", "./packaging/clients", version, into)
	pack.Dir = tree
	pack.Env = append(pack.Env, "SOURCE_DATE_EPOCH=1767225600")
	if output, err := combined(pack); err != nil {
		t.Fatalf("packaging/clients: %v\n%s", err, output)
	}
}

// clientVersion returns the version of the clients in this tree.
func clientVersion(t *testing.T) string {
	t.Helper()
	version, _ := newestVersion(t)
	return version
}

// unzip returns the names of the files, which it extracts.
func unzip(t *testing.T, archive, into string) (names []string) {
	t.Helper()
	content, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if err := os.CopyFS(into, content); err != nil {
		t.Fatal(err)
	}
	for _, file := range content.File {
		names = append(names, file.Name)
	}
	return names
}

// tarNames returns the names of the files in a .tar.gz, sorted.
func tarNames(t *testing.T, archive string) []string {
	t.Helper()
	names := strings.Fields(inArchive(t, filepath.Dir(archive), filepath.Base(archive), "--list"))
	slices.Sort(names)
	return names
}

// What the tools of other languages leave in a checkout, git ignores. So a release can follow.
func TestBuildsOfClientsLeaveNothing(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	for folder, build := range map[string]string{
		"python": `/usr/bin/python3 -c 'from setuptools import build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")' && /usr/bin/python3 -c 'import redlockd.testing'`,
		"node":   "npm pack --offline && npm install --offline",
		"ruby":   "gem build redlockd.gemspec",
		"php":    "COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_DISABLE_NETWORK=1 composer dump-autoload --no-interaction",
	} {
		command := c.command("sh", "-c", "cd client/"+folder+" && "+build)
		command.Env = append(command.Env, "HOME="+t.TempDir())
		if output, err := combined(command); err != nil {
			t.Logf("in client/%s: %v\n%s", folder, err, output) // the tool is missing
		}
	}
	if left := c.git("status", "--porcelain", "--untracked-files=all"); left != "" {
		t.Errorf("git sees\n%s", left)
	}
}
