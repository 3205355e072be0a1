//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	exampleDir = "../examples"
	adapterDir = "../examples/adapters"
)

// exampleFile is a client in another language, its interpreter or compiler, and that program's
// Debian package.
type exampleFile struct{ file, interpreter, pack string }

var examples = []exampleFile{
	{"locked.sh", "bash", "bash"},
	{"locked.py", "python3", "python3"},
	{"locked.mjs", "node", "nodejs"},
	{"locked.java", "javac", "default-jdk-headless"},
	{"locked.pl", "perl", "perl"},
	{"locked.c", "cc", "gcc libc6-dev"},
}

// Each example holds its lock while it works, and releases it. If another client has the lock, it
// is refused. If it loses the lock or the daemon, it stops.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.file, func(t *testing.T) {
			t.Parallel()
			program := e.program(t)
			h, d, _ := dev(t)
			x := &example{h, program}
			x.isUsedWrongly()
			x.worksAndUnlocks()
			x.excludes()
			x.isRefused()
			x.isLost()
			x.losesDaemon(d)
		})
	}
}

// If a service manager keeps the connections, examples that wait or work notice no restart: BACK is
// not an answer.
func TestExamplesOutlastRestart(t *testing.T) {
	t.Parallel()
	s := startSuccession(t, 100)
	look := s.nc()
	for _, e := range examples {
		t.Run(e.file, func(t *testing.T) {
			program := e.program(t)
			here := *s.host
			here.t = t
			x := &example{&here, program}
			look.expect("LOCK job", "OK lock=job")
			p := x.run("job", "5")
			waitFor(t, "it waits", func() bool { return look.waiters() == 1 })
			s.stored(2)
			s.succeed(syscall.SIGKILL)
			look.comes("BACK")
			look.expect("UNLOCK job", "OK lock=job")
			x.holds(p)
			s.succeed(syscall.SIGTERM)
			look.comes("BACK")
			if printed := x.ends(p, 0, ""); !strings.Contains(printed, "\ndone") {
				t.Errorf("%s prints %q, want that it is done", x.program, printed)
			}
			s.stored(1)
		})
	}
}

// program returns the command of the example. An executable example is started by itself: its first
// line names the interpreter. Others are compiled once for all tests.
func (e *exampleFile) program(t *testing.T) string {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	if _, err := exec.LookPath(e.interpreter); err != nil {
		t.Skipf("%s is needed: apt-get install %s", e.interpreter, e.pack)
	}
	path, err := filepath.Abs(filepath.Join(exampleDir, e.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(binaries, "examples", e.interpreter)
	binary := filepath.Join(dir, "locked")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	switch e.interpreter {
	case "cc":
		compile(t, e.interpreter, "-Wall", "-Wextra", "-Werror", "-O2", "-o", binary, path)
		return binary
	case "javac":
		compile(t, e.interpreter, "-Xlint:all,-serial", "-Werror", "-d", dir, path)
		writeFile(t, binary, "#!/bin/sh\nexec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "+dir+" Locked \"$@\"\n")
		if err := os.Chmod(binary, 0o700); err != nil {
			t.Fatal(err)
		}
		return binary
	}
	return path
}

// compiled guards the compiled examples in the directory binaries.
var compiled sync.Mutex

func compile(t *testing.T, compiler string, args ...string) {
	t.Helper()
	if output, err := combined(exec.Command(compiler, args...)); err != nil {
		t.Fatalf("%s %q: %v\n%s", compiler, args, err, output)
	}
}

// example is a program that uses the daemon of a host.
type example struct {
	*host
	program string
}

// run starts the example.
func (x *example) run(args ...string) *process {
	x.t.Helper()
	cmd := exec.Command(x.program, args...)
	cmd.Env = append(os.Environ(), "REDLOCK_SOCKET="+x.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return startCommand(x.t, cmd)
}

// ends checks the exit code, and that stderr contains word.
func (x *example) ends(p *process, code int, word string) (stdout string) {
	x.t.Helper()
	got := p.wait()
	stdout, stderr := p.rest()
	if got != code || !strings.Contains(stderr, word) || (word == "") != (stderr == "") {
		x.t.Errorf("%s: exit code %d, want %d and %q; it printed:\n%s\n%s", p.cmd, got, code, word, stdout, stderr)
	}
	return stdout
}

// holds waits until the example says that it has the lock.
func (x *example) holds(p *process) {
	x.t.Helper()
	if line := p.line(); !strings.HasPrefix(line, "holding ") || !strings.Contains(line, ", fencing token 1") {
		x.t.Fatalf("%s: got %q, want that it holds the lock", p.cmd, line)
	}
}

func (x *example) isUsedWrongly() {
	x.t.Helper()
	x.ends(x.run(), 64, "usage: ")
}

// worksAndUnlocks: because of linger=, the lock is free only after an UNLOCK.
func (x *example) worksAndUnlocks() {
	x.t.Helper()
	printed := x.ends(x.run("a b,=%\u00a0\u2028\u3000c", "2", "linger=20s", "note=example"), 0, "")
	if !strings.HasPrefix(printed, "holding a b,=%\u00a0\u2028\u3000c, ") || !strings.Contains(printed, "\nstep 1\nstep 2\ndone") {
		x.t.Errorf("%s prints %q, want the name, two steps, and that it is done", x.program, printed)
	}
	other := x.nc()
	other.expect("TRY a%20b%2C%3D%25\u00a0\u2028\u3000c", "OK lock=a%20b%2C%3D%25\u00a0\u2028\u3000c ")
	other.kill()
}

// excludes: while one example works, no other client gets the lock. When a signal has ended it, the
// next client does.
func (x *example) excludes() {
	x.t.Helper()
	holder, other := x.run("job", "100000"), x.nc()
	x.holds(holder)
	other.expect("TRY job", "ERR HELD lock=job")
	x.ends(x.run("job", "1", "wait=0"), 1, "ERR HELD lock=job")
	holder.signal(syscall.SIGTERM)
	other.expect("LOCK job wait=20s", "OK lock=job")
	other.kill()
}

// isRefused: each error has an exit code of its own, and a name cannot begin a new request.
func (x *example) isRefused() {
	x.t.Helper()
	x.ends(x.run("job", "1", "ttl=1"), 70, "ERR OPTION lock=job")
	x.ends(x.run("job\nFORCE\tother", "1"), 70, "ERR NAME")
	if e := filepath.Ext(x.program); e == ".py" || e == ".sh" || e == ".pl" { // other languages decode arguments as UTF-8
		x.ends(x.run("a\xff", "1"), 70, "ERR ")
		x.ends(x.run("job", "1", "note=\xff"), 70, "ERR ")
	}
	nowhere := &example{&host{t: x.t, socket: x.dir + "/nowhere"}, x.program}
	nowhere.ends(nowhere.run("job", "1"), 69, "nowhere")
}

// isLost: the example loses the lock while it works.
func (x *example) isLost() {
	x.t.Helper()
	if printed := x.ends(x.run("job", "100000", "max=500ms"), 75, "LOST lock=job"); strings.Contains(printed, "done") {
		x.t.Errorf("%s prints %q, want nothing of being done", x.program, printed)
	}
}

// losesDaemon: the daemon ends, and nothing extends the lock.
func (x *example) losesDaemon(d *process) {
	x.t.Helper()
	p := x.run("job", "100000")
	x.holds(p)
	d.signal(syscall.SIGKILL)
	x.ends(p, 75, "redlockd is gone")
}
