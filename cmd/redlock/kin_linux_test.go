package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func TestParseStat(t *testing.T) {
	const rest = "0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 3456 0 0 0"
	for text, want := range map[string]kinsman{
		"7 (sh) S 3 4 5 " + rest:             {pid: 7, parent: 3, session: 5, start: 3456},
		"7 (a) R 1 (b) S 9) Z 3 4 5 " + rest: {pid: 7, parent: 3, session: 5, start: 3456, dead: true},
		"7 (a b\n) X 3 4 5 " + rest:          {pid: 7, parent: 3, session: 5, start: 3456, dead: true},
	} {
		if got, err := parseStat(7, []byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7 (sh", "7 (sh) S 3 4 5", "7 (sh) S x 4 5 " + rest} {
		if k, err := parseStat(7, []byte(text)); err == nil {
			t.Errorf("%q is taken for %+v", text, k)
		}
	}
}

// Both ways to find children find the same. The tests of this process start others
// at the same time: it looks at a process of its own. In a container the session
// may be one from outside, which is number 0 there.
func TestChildren(t *testing.T) {
	t.Parallel()
	p := startCommand(t, command(t, "sh", "-c", "sleep 60 & sleep 61 & echo up $$; wait"), "", "")
	pid := p.up()
	us, err := readKinsman(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pids := func(children []kinsman) (all []int) {
		for _, k := range children {
			if k.parent != pid || k.session != us.session || k.start == 0 {
				t.Errorf("a child is %+v, want one of %d in our session, %d", k, pid, us.session)
			}
			all = append(all, k.pid)
		}
		slices.Sort(all)
		return all
	}
	listed, scanned := pids(listedChildren(pid)), pids(byParent()[pid])
	if len(listed) != 2 || !slices.Equal(listed, scanned) {
		t.Errorf("the children are %v and %v, want the same two", listed, scanned)
	}
	for _, k := range byParent()[pid] {
		if err := k.signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if k.start++; k.signal(syscall.SIGKILL) == nil {
			t.Errorf("a process that began at another time took a signal")
		}
	}
	p.rest()
}

// withHeir is a command that a signal ends, and what it has started outlives it.
const withHeir = `(trap "echo heir ends; exit" TERM; echo up $$; while :; do read order </dev/null; sleep 0.01; done) & wait`

// A command that is ended by a signal does not leave its work running behind the
// back of the next holder.
func TestLeftBehindIsToldToEnd(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	p := start(t, roleRedlock, f.socket, runOf(nil, "sh", "-c", withHeir)...)
	p.up()
	p.signal(syscall.SIGUSR1)
	p.expect("heir ends")
	p.ends(128 + int(syscall.SIGUSR1))
	f.read(ipc.VerbLock)
	f.read(ipc.VerbUnlock)
}

// One that somebody has stopped would not notice that it is to end.
func TestLeftBehindAndStopped(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, puppet("terminated")...)
	p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
	heir := p.up()
	syscall.Kill(heir, syscall.SIGSTOP)
	for end := time.Now().Add(patience); !isStopped(heir); {
		if time.Now().After(end) {
			t.Fatal("the heir does not stop")
		}
	}
	p.signal(syscall.SIGUSR1)
	p.terminated()
	p.ends(128 + int(syscall.SIGUSR1))
}

func isStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") T ")
}

// While it does not end the lock is kept, and that is said.
func TestLeftBehindKeepsTheLock(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, puppet("hangup")...)
	p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
	p.up()
	p.signal(syscall.SIGALRM)
	p.terminated()
	p.awaitSaid("kept until those")
	f.read(ipc.VerbLock)
	if len(f.requests) > 0 {
		t.Errorf("while an heir ran the daemon read %v", (<-f.requests).Verb)
	}
	p.signal(syscall.SIGHUP)
	p.rest()
	p.ends(128 + int(syscall.SIGALRM))
	f.read(ipc.VerbUnlock)
}

// Where the lock is lost, none survives who does not stop.
func TestLeftBehindIsKilled(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbLock: grants(2 * time.Second)})
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, puppet()...)
	p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
	p.up()
	if out := p.rest(); !strings.Contains(out, "got terminated") {
		t.Errorf("the heir said %q, want got terminated", out)
	}
	p.ends(exitLost)
}

// restless is a process that, told to end, goes on in one child after the other, so that
// who has looked for it finds nobody any more; for longer than until the first SIGKILL.
const restless = `use Time::HiRes "time"; $| = 1; $SIG{TERM} = sub { $end ||= time + 0.8 }; print "up $$\n"; select undef, undef, undef, 1 until $end;
while (time < $end) { exit if fork } sleep 10; print "not killed\n"`

// Who escapes one SIGKILL does not escape the next: nothing is left when redlock run ends.
func TestLeftBehindAndRestless(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbLock: grants(2 * time.Second)})
	p := start(t, roleRedlock, f.socket, runOf(nil, "sh", "-c", `for i in 1 2 3 4; do perl -e "$0" & done; wait`, restless)...)
	for range 4 {
		p.up()
	}
	p.ends(exitLost)
	p.stdout.SetReadDeadline(time.Now().Add(3 * time.Second))
	if out := p.rest(); out != "" {
		t.Errorf("they say %q", out)
	}
}

// A command that ends by itself may leave a process running, and who has made a
// session of its own is never meant.
func TestLeftBehindOnPurpose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, script, order string
		want                int
	}{
		{"after the end", `"$@" & exit 5`, "", 5},
		{"a session of its own", `setsid "$@" & read order; kill -TERM $$`, "\n", 128 + 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, holding())
			command := append([]string{"sh", "-c", test.script, "sh"}, puppet("user defined signal 2")...)
			p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
			heir := p.up()
			io.WriteString(p.stdin, test.order) // nobody reads ""
			p.ends(test.want)
			syscall.Kill(heir, syscall.SIGUSR2)
			if out := p.rest(); out != "got user defined signal 2\n" {
				t.Errorf("the heir said %q, want only the signal that ends it", out)
			}
		})
	}
}

// A command that has given the lock back, and is ended by a signal then, leaves behind what
// it likes: there is no lock that would be kept.
func TestLeftBehindByWhoGaveBack(t *testing.T) {
	t.Parallel()
	const gone = "ERR NOTHELD : there is no lease with this id here (any more)"
	f := startFake(t, answers{ipc.VerbLock: grants(time.Second), ipc.VerbCheck: says(gone), ipc.VerbUnlock: says(gone)})
	command := append([]string{"sh", "-c", `"$@" & sleep 1.5; kill -USR1 $$`, "sh"}, puppet("user defined signal 2")...)
	p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
	heir := p.up()
	p.ends(128 + int(syscall.SIGUSR1)) // and not 75: after 1.5 s it is known that it was given back
	syscall.Kill(heir, syscall.SIGUSR2)
	if out := p.rest(); out != "got user defined signal 2\n" {
		t.Errorf("the heir said %q, want only the signal that ends it", out)
	}
	if said := p.said(); said != "" {
		t.Errorf("stderr is %q, want nothing", said)
	}
}
