//go:build linux

package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// holderWithChild takes a lock, and has a child that inherits the connection. It prints the child's pid.
// Neither of the two reconnects.
const holderWithChild = `import os, signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\n")
answer = s.recv(4096).decode().split()[0]
child = os.fork()
if child == 0:
    signal.alarm(300)  # if the test is killed
else:
    print(answer, child, flush=True)
while True:
    signal.pause()
`

// startHolder starts a holder, and returns how to end its child.
func startHolder(t *testing.T, h *host, request string) (parent *process, endChild func()) {
	t.Helper()
	parent = start(t, h.dir, debianPython, "-c", holderWithChild, h.socket, request)
	answer, child, _ := strings.Cut(parent.line(), " ")
	pid, err := strconv.Atoi(child)
	if err != nil || answer != "OK" {
		t.Fatalf("the holder prints %q %q, want OK and a pid", answer, child)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	return parent, func() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		parent.rest() // the child has the pipes, too
	}
}

// Without a service manager, a holder ends while no redlockd runs. The next redlockd releases its lock
// at once, and not at the deadline. But a child may continue the work as long as it has the connection,
// and a process that lives may resume its lease: these keep their locks until the deadline.
func TestHolderEndsWhileNoDaemonRuns(t *testing.T) {
	together(t)
	_, h, d := five(t)
	alone := h.nc()
	alone.expect("LOCK alone ttl=30s", "OK lock=alone")
	parent, endChild := startHolder(t, h, "LOCK inherited ttl=30s")
	startHolder(t, h, "LOCK kept ttl=3s")

	d.kill()
	alone.kill()
	parent.kill()
	d = h.serve()
	n := h.nc()
	n.expect("LOCK alone wait=10s", "OK lock=alone")
	if who := n.lines("WHO alone"); len(who) != 2 || field(who[0], "pid") != strconv.Itoa(n.cmd.Process.Pid) {
		t.Errorf("WHO shows %q, want only the new holder", who)
	}
	n.expect("TRY inherited", "ERR HELD lock=inherited")
	n.expect("LOCK kept wait=60s", "OK lock=kept")
	if line := awaitLog(d, "lease lost"); !strings.Contains(line, "lock=kept") || !strings.Contains(line, "did not resume it") {
		t.Errorf("the log says %s; want that the client did not resume its lease", line)
	}

	d.kill()
	endChild()
	h.serve()
	h.nc().expect("LOCK inherited wait=10s", "OK lock=inherited")
}
