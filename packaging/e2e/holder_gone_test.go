//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// quietHolder takes a lock, and does nothing else, even if its connection ends.
const quietHolder = `import signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\n")
print(s.recv(4096).decode().split()[0], flush=True)
signal.alarm(300)  # if the test is killed
while True:
    signal.pause()
`

// Without a service manager, holders end while no redlockd runs. The next one releases at once what a
// process held (hold=pid). What a connection held stays until the deadline, because another process may
// resume it, as with nc in a script: WHO, LIST, redlock who and the log say that its process is gone.
func TestHolderEndsWhileNoDaemonRuns(t *testing.T) {
	t.Parallel()
	_, h, d := five(t)
	alone, short, byPID := h.nc(), h.nc(), h.nc()
	lease := field(alone.expect("LOCK alone ttl=30s", "OK lock=alone"), "lease")
	short.expect("LOCK short ttl=5s", "OK lock=short")
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	byPID.expect(fmt.Sprintf("LOCK sleeps hold=pid pid=%d ttl=30s", sleep.Process.Pid), "OK lock=sleeps")
	for _, request := range []string{"LOCK lives ttl=30s", "LOCK lapses ttl=5s"} {
		quiet := start(t, h.dir, debianPython, "-c", quietHolder, h.socket, request)
		if got := quiet.line(); got != "OK" {
			t.Fatalf("%s: got %s, want OK", request, got)
		}
	}

	d.kill()
	alone.kill()
	short.kill()
	sleep.Process.Kill()
	sleep.Wait()
	d = h.serve()
	n := h.nc()
	for name, want := range map[string]string{"alone": "yes", "lives": ""} {
		if who := n.lines("WHO " + name); len(who) != 2 || field(who[0], "gone") != want {
			t.Errorf("WHO %s: %q, want gone=%s", name, who, want)
		}
	}
	list := n.lines("LIST")
	for _, line := range list[:len(list)-1] {
		lock, gone := field(line, "lock"), field(line, "gone")
		if lock == "alone" && gone != "yes" || lock == "lives" && gone != "" {
			t.Errorf("LIST: %s, want gone=yes of alone only", line)
		}
	}
	for _, args := range [][]string{{"who", "alone"}, {"list"}} {
		if out, err := combined(h.redlock(args...)); err != nil || !strings.Contains(string(out), " (gone) ") {
			t.Errorf("redlock %q: %v: %s; want (gone) in it", args, err, out)
		}
	}
	n.expect("LOCK sleeps wait=10s", "OK lock=sleeps")

	n.expect("RESUME alone lease="+lease, "OK lock=alone")
	if who := n.lines("WHO alone"); len(who) != 2 || field(who[0], "gone") != "" {
		t.Errorf("WHO alone: %q, want no gone= after RESUME", who)
	}
	for name, cause := range map[string]string{
		"short":  "its process had ended when redlockd started again, and no client resumed it",
		"lapses": "its connection ended with the previous redlockd, and no client resumed it",
	} {
		n.expect("LOCK "+name+" wait=60s", "OK lock="+name)
		if lost := fmt.Sprintf(`lease lost: lock=%s reason=expired`, name); !strings.Contains(d.stderr.text(), lost) {
			awaitLog(d, lost)
		}
		if log := d.stderr.text(); !strings.Contains(log, cause) {
			t.Errorf("the log lacks %q:\n%s", cause, log)
		}
	}
}
