package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	for _, text := range []string{"", "7 (sh", "7 (sh) S 3 4 5", "7 (sh) S x 4 5 " + rest, "7 (sh) S 3 4 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0"} {
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
	for role, cmd := range map[string]*exec.Cmd{"": command(t, "sh", "-c", "sleep 60 & sleep 61 & echo up $$; wait"), roleThreads: command(t, testBinary)} {
		t.Run(role, func(t *testing.T) { findsTwo(t, startCommand(t, cmd, role, "")) })
	}
}

// roleThreads has a child of each of two threads.
const roleThreads = "threads"

func init() { roles[roleThreads] = threadsMain }

func threadsMain([]string) int {
	runtime.LockOSThread()
	first, second := exec.Command("sleep", "60"), exec.Command("sleep", "61")
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- second.Start()
		select {} // the thread stays
	}()
	if err := errors.Join(first.Start(), <-started); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up", os.Getpid())
	first.Wait()
	second.Wait()
	return 0
}

func findsTwo(t *testing.T, p *process) {
	t.Helper()
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
	awaitStopped(t, heir)
	p.signal(syscall.SIGUSR1)
	p.terminated()
	p.ends(128 + int(syscall.SIGUSR1))
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
	p.signal(syscall.SIGUSR2)                     // it looks again, and has said it
	for p.line() != "got user defined signal 2" { // after that of the SIGCONT
	}
	f.read(ipc.VerbLock)
	if len(f.requests) > 0 {
		t.Errorf("while an heir ran the daemon read %v", (<-f.requests).Verb)
	}
	p.signal(syscall.SIGHUP)
	p.rest()
	p.ends(128 + int(syscall.SIGALRM))
	f.read(ipc.VerbUnlock)
	if n := strings.Count(p.said(), "kept until those"); n != 1 {
		t.Errorf("it is said %d times, want once: %q", n, p.said())
	}
}

// Where the lock is lost, none survives who does not stop, however the command ends.
func TestLeftBehindIsKilled(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"by a signal": `"$@" & wait`, "by itself": `trap "exit 3" TERM; "$@" & wait`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, answers{ipc.VerbLock: grants(2 * time.Second)})
			p := start(t, roleRedlock, f.socket, runOf(nil, append([]string{"sh", "-c", script, "sh"}, puppet()...)...)...)
			p.up()
			if out := p.rest(); !strings.Contains(out, "got terminated") {
				t.Errorf("the heir said %q, want got terminated", out)
			}
			p.ends(exitLost)
		})
	}
}

// Those are told, too, that an heir has started.
func TestLeftBehindOfHeirs(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	command := append([]string{"sh", "-c", `sh -c '"$@" & wait' sh "$@" & wait`, "sh"}, puppet("terminated")...)
	p := start(t, roleRedlock, f.socket, runOf(nil, command...)...)
	p.up()
	p.signal(syscall.SIGUSR1)
	p.terminated()
	p.ends(128 + int(syscall.SIGUSR1))
}

// restless is a process that, told to end, goes on in one child after the other, so that
// who has looked for it finds nobody any more; for longer than until the first SIGKILL.
const restless = `$| = 1; $SIG{TERM} = sub { $end ||= time + 2 }; print "up $$\n"; select undef, undef, undef, 1 until $end;
while (time < $end) { exit if fork; select undef, undef, undef, $ENV{PACE} } sleep 10; print "not killed\n"`

// Who escapes one SIGKILL does not escape the next: nothing is left when redlock run ends.
// One that is as quick as it can be takes the processor from other tests: that is for
// REDLOCKD_LONG=1.
func TestLeftBehindAndRestless(t *testing.T) {
	needPerl(t)
	pace := "0.01"
	if os.Getenv("REDLOCKD_LONG") != "" {
		pace = "0"
	}
	f := startFake(t, answers{ipc.VerbLock: grants(2 * time.Second)})
	p := start(t, roleRedlock, f.socket, runOf(nil, "env", "PACE="+pace, "sh", "-c", `for i in 1 2 3 4; do perl -e "$0" & done; wait`, restless)...)
	for range 4 {
		p.up()
	}
	p.ends(exitLost)
	p.stdout.SetReadDeadline(time.Now().Add(3 * time.Second))
	if out := p.rest(); out != "" {
		t.Errorf("they say %q", out)
	}
}

// A child that has ended may have started another process while the kin was looked for,
// until it is reaped; one that runs is among the kin.
func TestChildEnded(t *testing.T) { // not beside others, which have children
	child := command(t, "sh", "-c", "read end")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if childEnded() {
		t.Error("a child that runs has ended, or one of another test is left")
	}
	stdin.Close()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !childEnded() {
		t.Error("the child has ended, and is not seen")
	}
	if child.Wait(); childEnded() {
		t.Error("it is reaped, and seen yet")
	}
}

// Who is left is told to end, or killed once more where others were killed; and it is not over
// before the dead are reaped: what they have started until then would not have been seen.
func TestLeftBehindIsLookedForAgain(t *testing.T) { // not beside others, whose processes it would end
	for want, killed := range map[syscall.Signal]bool{syscall.SIGTERM: false, syscall.SIGKILL: true} {
		heir := command(t, "sh", "-c", "echo up $$; read end")
		p := startCommand(t, heir, "", "")
		p.up()
		c := &child{ended: true, lost: errors.New("lost"), killed: killed, again: time.NewTimer(0)}
		if c.over() {
			t.Errorf("%v: it is over, and somebody ran", want)
		}
		p.stdin.Close() // who took no signal ends by itself
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, heir.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		if c.over() {
			t.Errorf("%v: it is over, and the dead are not reaped", want)
		}
		p.ends(-int(want))
		if !c.over() {
			t.Errorf("%v: it is not over, and nobody is left", want)
		}
	}
}

// deadChild has a child that has ended, in the session that it was in itself, and does not look.
const deadChild = `pipe R, W; if (!fork) { exit } close W; require POSIX; POSIX::setsid(); <R>; $| = 1; print "up $$\n"; sleep 60`

// Nobody waits for the dead, whose parents are not of the kin.
func TestLeftBehindAndDead(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	p := start(t, roleRedlock, f.socket, runOf(nil, "sh", "-c", `perl -e "$0" & wait`, deadChild)...)
	daemon := p.up()
	p.signal(syscall.SIGUSR1)
	p.ends(128 + int(syscall.SIGUSR1))
	syscall.Kill(daemon, syscall.SIGKILL)
}

// Whoever does not read stderr keeps nobody from ending.
func TestLeftBehindIsToldToNobody(t *testing.T) {
	t.Parallel()
	_, full := readEnd(t)
	defer full.Close()
	fill(t, full)
	f := startFake(t, holding())
	run := runOf(nil, "sh", "-c", `(trap "" TERM; echo up $$; sleep 2) & wait`) // until after explainAfter
	cmd := command(t, "sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh", testBinary}, run...)...)
	cmd.ExtraFiles = []*os.File{full}
	p := startCommand(t, cmd, roleRedlock, f.socket)
	p.up()
	p.signal(syscall.SIGUSR1)
	p.ends(128 + int(syscall.SIGUSR1))
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

// What ran before the command is none of its kin, though it is our child: of a shell that
// became redlock run, such as who reads what the command writes (redlock run job CMD > >(tee
// log)), which ends only after redlock run.
func TestWhoWasThereBefore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ttl  time.Duration
		want int
	}{
		{"the command is ended by a signal", 2 * patience, 128 + int(syscall.SIGUSR1)},
		{"the lock is lost", 2 * time.Second, exitLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, answers{ipc.VerbLock: grants(test.ttl), ipc.VerbUnlock: says("OK")})
			words := append([]string{"-c", `"$1" "$2" "$3" "$4" & shift 4; read go; exec "$@"`, "sh"}, puppet("user defined signal 2")...)
			words = append(words, testBinary)
			p := startCommand(t, command(t, "sh", append(words, runOf(nil, "sh", "-c", `echo under; trap "" TERM; while :; do sleep 0.1; done`)...)...), roleRedlock, f.socket)
			before := p.up()
			p.tell("go")
			p.expect("under")
			if test.want != exitLost {
				p.signal(syscall.SIGUSR1)
			}
			p.ends(test.want)
			syscall.Kill(before, syscall.SIGUSR2)
			if out := p.rest(); out != "got user defined signal 2\n" {
				t.Errorf("who was there before said %q, want only the signal that ends it", out)
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
