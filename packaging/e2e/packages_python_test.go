//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// debianPython is the interpreter that has Debian's packages, in tests that need one of them.
const debianPython = "/usr/bin/python3"

// The Python client passes its tests as pip installs the wheel of a release.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(debianPython); err != nil {
		t.Skipf("python3 is needed: apt-get install python3: %v", err)
	}
	installed := installWheel(t)
	_, h, _ := five(t)
	files, err := filepath.Glob("../../client/python/tests/test_*.py")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, file := range files {
		passes(t, exec.Command(debianPython, "-B", "-W", "error", file, "-v"),
			"PYTHONPATH="+installed, "REDLOCK_SOCKET="+h.socket, "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(500, 10_000)))
	}
}

// installWheel returns the folder into which it installed the wheel, with pip if there is one.
func installWheel(t *testing.T) string {
	t.Helper()
	wheel, into := clientPackage(t, "redlockd-VERSION-py3-none-any.whl"), t.TempDir()
	if _, err := combined(exec.Command(debianPython, "-m", "pip", "--version")); err != nil {
		unzip(t, wheel, into)
		return into
	}
	if output, err := combined(exec.Command(debianPython, "-m", "pip", "install", "--no-index", "--no-compile", "--target", into, wheel)); err != nil {
		t.Fatalf("pip install: %v\n%s", err, output)
	}
	return into
}

// pip can build a wheel of the sdist. It has the files and the metadata of the wheel of a release.
func TestPythonSdist(t *testing.T) {
	t.Parallel()
	if output, err := combined(exec.Command(debianPython, "-c", "import setuptools, wheel")); err != nil {
		t.Skipf("setuptools and wheel are needed: apt-get install python3-setuptools python3-wheel: %v %s", err, output)
	}
	source := t.TempDir()
	sdist := clientPackage(t, "redlockd-VERSION.tar.gz")
	inArchive(t, filepath.Dir(sdist), filepath.Base(sdist), "--extract", "--directory", source, "--strip-components=1")
	build := exec.Command(debianPython, "-c", "from setuptools import build_meta; build_meta.build_wheel('dist')")
	build.Dir = source
	if output, err := combined(build); err != nil {
		t.Fatalf("the sdist does not build: %v\n%s", err, output)
	}
	built, ours := t.TempDir(), t.TempDir()
	name := filepath.Base(clientPackage(t, "redlockd-VERSION-py3-none-any.whl"))
	names := unzip(t, filepath.Join(source, "dist", name), built)
	released := append(unzip(t, clientPackage(t, name), ours), "redlockd-"+clientVersion(t)+".dist-info/top_level.txt")
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(released))) {
		t.Errorf("setuptools packs\n%q, and a release has\n%q", names, released)
	}
	metadata := filepath.Join("redlockd-"+clientVersion(t)+".dist-info", "METADATA")
	theirs := readFile(t, filepath.Join(built, metadata))
	for line := range strings.Lines(readFile(t, filepath.Join(ours, metadata))) {
		if !strings.Contains(theirs, line) && !strings.HasPrefix(line, "Metadata-Version:") {
			t.Errorf("METADATA of setuptools lacks %q", line)
		}
	}
}

// The types of the Python client are right, for programs that check theirs as well.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Skip("mypy is needed: apt-get install mypy")
	}
	for _, version := range []string{"3.9", "3.11"}[:rounds(1, 2)] {
		check := exec.Command("mypy", "--strict", "--python-version", version, "--cache-dir", t.TempDir(), "redlockd", "tests")
		check.Dir = "../../client/python"
		passes(t, check)
	}
}
