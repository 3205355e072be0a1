package conformance

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var other = flag.String("program", "", "the command of a program that uses another client: see README.md")

// asProgram in the environment makes this test binary the program of the Go client.
const asProgram = "REDLOCKD_CONFORMANCE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		runProgram()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// Every client passes every script.
func TestGo(t *testing.T) {
	t.Parallel()
	playAll(t, "env", asProgram+"=1", os.Args[0])
}

func TestPython(t *testing.T) {
	t.Parallel()
	playAll(t, python(t), "program.py")
}

func TestAsyncio(t *testing.T) {
	t.Parallel()
	playAll(t, python(t), "program.py", "--aio")
}

func TestNode(t *testing.T) {
	t.Parallel()
	playAll(t, needs(t, "node", "nodejs"), "program.mjs")
}

func TestRuby(t *testing.T) {
	t.Parallel()
	playAll(t, needs(t, "ruby", "ruby"), "program.rb")
}

func TestPHP(t *testing.T) {
	t.Parallel()
	playAll(t, needs(t, "php", "php-cli"), "program.php")
}

// TestProgram tests another client.
func TestProgram(t *testing.T) {
	if *other == "" {
		return // nothing is asked for
	}
	playAll(t, strings.Fields(*other)...)
}

// playAll plays all scripts to a few processes, which run at the same time because most scripts wait.
func playAll(t *testing.T, command ...string) {
	next := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { playSome(t, command, next) })
	}
	for _, path := range scripts(t) {
		next <- path
	}
	close(next)
	all.Wait()
}

// playSome plays scripts to one process. If a script fails, the next one gets a new process.
func playSome(t *testing.T, command []string, next <-chan string) {
	var p *program
	for path := range next {
		if !t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(one *testing.T) {
			if p == nil {
				p = startProgram(one, command)
				t.Cleanup(p.kill)
			}
			play(one, path, p)
		}) && p != nil {
			p.kill()
			p = nil
		}
	}
	if p != nil {
		p.exit(t)
	}
}

// python returns Debian's interpreter if there is one, because that has Debian's packages.
func python(t *testing.T) string {
	t.Helper()
	const debian = "/usr/bin/python3"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return needs(t, "python3", "python3")
}

// needs returns the path of a program, or skips the test.
func needs(t *testing.T, program, pack string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is needed: apt-get install %s", program, pack)
	}
	return path
}
