//go:build linux

package e2e

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// patience is how long a test waits for an event. Only a failing test takes that long.
const patience = 2 * time.Minute

// binaries is the directory with redlockd and redlock as they are shipped.
var binaries string

func TestMain(m *testing.M) {
	if socket := os.Getenv(probeSocket); socket != "" {
		os.Exit(runProber(socket))
	}
	flag.Parse()
	// Parallel tests mostly wait: for ends of a ttl, for other processes, for a machine that boots.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	build := goCommand("build", "-o", dir+"/", "./cmd/...")
	build.Dir = filepath.Join("..", "..")
	if output, err := combined(build); err != nil {
		fmt.Fprintf(os.Stderr, "the programs do not build: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// goCommand runs the go command with the settings of package.sh, whose results are in Go's cache.
// Results of go test with the race detector are of no use here.
func goCommand(args ...string) *exec.Cmd {
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	return command
}

// rounds returns how often a random case is tried: more if the tests may take hours.
var rounds = effort.Rounds

// needNC skips the test if nc lacks the options that the README uses.
func needNC(t *testing.T) {
	t.Helper()
	help, _ := combined(exec.Command("nc", "-h")) // its status is meaningless
	if !strings.Contains(string(help), "OpenBSD") {
		t.Skip("nc -U -N is needed, that of OpenBSD: apt-get install netcat-openbsd")
	}
}

// waitFor polls until isSo returns true.
func waitFor(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	waitWithin(t, patience, what, isSo)
}

// waitWithin is waitFor with another bound.
func waitWithin(t *testing.T, bound time.Duration, what string, isSo func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	giveUp := time.After(bound)
	for !isSo() {
		select {
		case <-tick.C:
		case <-giveUp:
			t.Fatalf("after %v still not: %s", bound, what)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	return string(readBytes(t, path))
}

func readBytes(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// median returns the median.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// A static binary has no dynamic loader, so it runs on any Linux.
func TestBinariesAreStatic(t *testing.T) {
	for _, name := range []string{"redlock", "redlockd"} {
		file, err := elf.Open(filepath.Join(binaries, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, part := range file.Progs {
			if part.Type == elf.PT_INTERP {
				t.Errorf("%s wants a dynamic loader, expected a static binary", name)
			}
		}
	}
}
