//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A child that the Python example forked does not release the lock of its parent when it leaves the
// with block. If the parent is killed, the lock is free at once with hold=pid; without it, when the
// child has ended.
func TestExampleForks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is needed: apt-get install python3")
	}
	dir, err := filepath.Abs(exampleDir)
	if err != nil {
		t.Fatal(err)
	}
	h, _, _ := dev(t)
	look := h.nc()
	run := func(hold, script string) *process {
		path := filepath.Join(t.TempDir(), "forks.py")
		writeFile(t, path, "import os, signal, sys\nsys.path.insert(0, "+"'"+dir+"')\nsys.dont_write_bytecode = True\nfrom locked import Lock\n"+script)
		return start(t, h.dir, "env", "REDLOCK_SOCKET="+h.socket, "python3", path, hold)
	}
	for _, hold := range []string{"hold=conn", "hold=pid"} {
		p := run(hold, `
with Lock("job", sys.argv[1]) as lock:
    if os.fork() == 0:
        sys.exit(0)  # leaves the block
    os.wait()
    if os.fork():
        os.wait()
        print("children have left", flush=True)
        signal.pause()
os._exit(0)
`)
		waitFor(t, "the children leave the block", func() bool { return strings.Contains(p.stdout.text(), "children have left") })
		look.expect("TRY job", "ERR HELD lock=job ")
		p.signal(syscall.SIGKILL)
		p.wait()
		look.expect("LOCK job wait=30s", "OK lock=job")
		look.expect("UNLOCK job", "OK lock=job")

		p = run(hold, `
with Lock("job", sys.argv[1]) as lock:
    os.write(1, f"{os.fork() or 'child'}\n".encode())  # print writes the line in two parts
    signal.pause()
`)
		waitFor(t, "parent and child run", func() bool { return len(strings.Fields(p.stdout.text())) == 2 })
		p.signal(syscall.SIGKILL)
		if hold == "hold=conn" {
			look.expect("TRY job", "ERR HELD lock=job ")
			child := strings.Fields(strings.ReplaceAll(p.stdout.text(), "child", ""))[0]
			if out, err := combined(exec.Command("kill", "-KILL", child)); err != nil {
				t.Fatalf("kill: %s", out)
			}
		}
		look.expect("LOCK job wait=30s", "OK lock=job")
		look.expect("UNLOCK job", "OK lock=job")
		if hold == "hold=pid" {
			child := strings.Fields(strings.ReplaceAll(p.stdout.text(), "child", ""))[0]
			if _, err := os.Stat("/proc/" + child); err != nil {
				t.Errorf("the child has ended: %v", err)
			}
			if out, err := combined(exec.Command("kill", "-KILL", child)); err != nil {
				t.Fatalf("kill: %s", out)
			}
		}
		p.wait()
	}
}
