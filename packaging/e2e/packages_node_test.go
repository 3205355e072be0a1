//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

const nodeClient = "../../client/node"

// The Node client passes its tests as npm installs the tarball of a release.
func TestNodePackage(t *testing.T) {
	t.Parallel()
	needNode(t)
	project := nodeProject(t)
	_, h, _ := five(t)
	if err := os.CopyFS(filepath.Join(project, "test"), os.DirFS(filepath.Join(nodeClient, "test"))); err != nil {
		t.Fatal(err)
	}
	tests := exec.Command("node", "--test", "test/redlockd.test.js", "test/testing.test.js")
	tests.Dir = project
	passes(t, tests, "REDLOCK_SOCKET="+h.socket, "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(500, 10_000)))
}

// The declarations are right, for programs that check theirs as well.
func TestNodeTypes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tsc"); err != nil {
		t.Skip("tsc is needed: apt-get install node-typescript")
	}
	project := nodeProject(t)
	writeFile(t, filepath.Join(project, "types.mts"), readFile(t, filepath.Join(nodeClient, "test", "types.mts")))
	check := exec.Command("tsc", "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes",
		"--target", "es2022", "--module", "node16", "--moduleResolution", "node16", "--lib", "es2022,dom", "types.mts")
	check.Dir = project
	passes(t, check)
}

func needNode(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is needed: apt-get install nodejs")
	}
}

// nodeProject returns a new folder of a project that has installed the package. Node looks for packages in
// the folders above as well.
func nodeProject(t *testing.T) string {
	t.Helper()
	nodeInstalled.Do(func() { installNodeClient(t, filepath.Join(binaries, "node")) })
	dir, err := os.MkdirTemp(filepath.Join(binaries, "node"), "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var nodeInstalled sync.Once

// installNodeClient makes a project with the package, with npm if there is one.
func installNodeClient(t *testing.T, dir string) {
	t.Helper()
	tarball, installed := clientPackage(t, "redlockd-VERSION.tgz"), filepath.Join(dir, "node_modules", "redlockd")
	if err := os.MkdirAll(installed, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "package.json"), `{"type": "module", "private": true}`)
	if _, err := exec.LookPath("npm"); err != nil {
		inArchive(t, filepath.Dir(tarball), filepath.Base(tarball), "--extract", "--directory", installed, "--strip-components=1")
		return
	}
	install := exec.Command("npm", "install", "--offline", "--no-audit", "--no-fund", tarball)
	install.Dir = dir
	install.Env = append(os.Environ(), "HOME="+dir)
	if output, err := combined(install); err != nil {
		t.Fatalf("npm install: %v\n%s", err, output)
	}
}

// npm packs the same files as a release has, except the licence.
func TestNodeFiles(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is needed: apt-get install npm")
	}
	dir := t.TempDir()
	pack := exec.Command("npm", "pack", "--offline", "--pack-destination", dir)
	pack.Dir = nodeClient
	pack.Env = append(os.Environ(), "HOME="+dir)
	if output, err := combined(pack); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, output)
	}
	tarball := clientPackage(t, "redlockd-VERSION.tgz")
	want := slices.Sorted(slices.Values(append(tarNames(t, filepath.Join(dir, filepath.Base(tarball))), "package/LICENSE")))
	if got := tarNames(t, tarball); !slices.Equal(got, want) {
		t.Errorf("a release has\n%q, and npm packs\n%q", got, want)
	}
}
