//go:build linux

package e2e

import (
	"archive/zip"
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

// The wheel of the Python client is built with Debian's tools. Its types are right, and its tests
// pass with the wheel.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	if output, err := combined(exec.Command(debianPython, "-c", "import setuptools, wheel")); err != nil {
		t.Skipf("setuptools and wheel are needed: apt-get install python3-setuptools python3-wheel: %v %s", err, output)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source") // the build leaves files there
	if err := os.CopyFS(source, os.DirFS("../../client/python")); err != nil {
		t.Fatal(err)
	}
	git := func(arguments ...string) string {
		output, err := combined(exec.Command("git", append([]string{"-C", source}, arguments...)...))
		if err != nil {
			t.Fatalf("git %q: %v\n%s", arguments, err, output)
		}
		return string(output)
	}
	git("init", "-q")
	git("add", "-A")
	wheel := buildWheel(t, source, dir)
	if seen := git("status", "--porcelain", "--untracked-files=all"); strings.Contains(seen, "??") {
		t.Errorf("git sees what the build leaves:\n%s", seen)
	}
	_, h, _ := five(t)
	files, err := filepath.Glob(filepath.Join(source, "tests/test_*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, file := range files {
		tests := exec.Command(debianPython, "-W", "error", file, "-v")
		tests.Env = append(os.Environ(), "PYTHONPATH="+wheel, "REDLOCK_SOCKET="+h.socket, "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(500, 10_000)))
		if output, err := combined(tests); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(file), err, output)
		}
	}
}

// buildWheel builds the wheel as pip does, without downloads.
func buildWheel(t *testing.T, source, into string) string {
	t.Helper()
	build := exec.Command(debianPython, "-c", "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])", into)
	build.Dir = source
	if output, err := combined(build); err != nil {
		t.Fatalf("the wheel does not build: %v\n%s", err, output)
	}
	wheels, err := filepath.Glob(filepath.Join(into, "redlockd-*-py3-none-any.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("got the wheels %q (%v), want one", wheels, err)
	}
	content, err := zip.OpenReader(wheels[0])
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	for _, name := range []string{"redlockd/__init__.py", "redlockd/aio.py", "redlockd/py.typed"} {
		if !slices.ContainsFunc(content.File, func(f *zip.File) bool { return f.Name == name }) {
			t.Errorf("the wheel lacks %s", name)
		}
	}
	return wheels[0]
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
		if output, err := combined(check); err != nil {
			t.Errorf("mypy for Python %s: %v\n%s", version, err, output)
		}
	}
}
