//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

const nodeClient = "../../client/node"

// The Node client passes its tests as it is packed: with the files that package.json lists.
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
	tests.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket, "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(500, 10_000)))
	if output, err := combined(tests); err != nil {
		t.Errorf("the tests of the Node client: %v\n%s", err, output)
	}
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
	if output, err := combined(check); err != nil {
		t.Errorf("tsc: %v\n%s", err, output)
	}
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

// installNodeClient makes a project with the package: from the archive of npm pack or, without npm, with
// the files that npm would pack.
func installNodeClient(t *testing.T, dir string) {
	t.Helper()
	installed := filepath.Join(dir, "node_modules", "redlockd")
	if err := os.MkdirAll(installed, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "package.json"), `{"type": "module", "private": true}`)
	if _, err := exec.LookPath("npm"); err == nil {
		pack := exec.Command("npm", "pack", "--offline", "--pack-destination", dir)
		pack.Dir = nodeClient
		pack.Env = append(os.Environ(), "HOME="+dir)
		if output, err := combined(pack); err != nil {
			t.Fatalf("npm pack: %v\n%s", err, output)
		}
		unpack := exec.Command("tar", "-xzf", filepath.Join(dir, "redlockd-0.9.0.tgz"), "-C", installed, "--strip-components=1")
		if output, err := combined(unpack); err != nil {
			t.Fatalf("tar: %v\n%s", err, output)
		}
		return
	}
	var described struct{ Files []string }
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(nodeClient, "package.json"))), &described); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(described.Files, "package.json", "README.md") {
		writeFile(t, filepath.Join(installed, name), readFile(t, filepath.Join(nodeClient, name)))
	}
}
