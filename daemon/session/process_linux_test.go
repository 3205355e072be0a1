package session

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/redlock"
)

// child is a process that does nothing until it is ended.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	pid  int
	over bool
}

// newChild starts a child as a user.
func newChild(t *testing.T, uid int) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command("cat")}
	if uid != os.Getuid() {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if _, err := c.cmd.StdinPipe(); err != nil { // the open pipe keeps cat running
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.pid = c.cmd.Process.Pid
	t.Cleanup(c.end)
	return c
}

// end kills the child and waits for it. Then its pid is free.
func (c *child) end() {
	if !c.over {
		c.over = true
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}

// killed kills the child and does not wait for it. It is then a zombie, which counts as ended.
func (c *child) killed() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
}

// A lease with hold=pid ends with its process, and not with a connection.
func TestHoldPID(t *testing.T) {
	for _, dev := range []bool{false, true} {
		t.Run(fmt.Sprintf("dev=%v", dev), func(t *testing.T) {
			d := startDaemon
			if dev {
				d = func(t *testing.T, _ int, _ func(*config.Config)) *testDaemon { return startDev(t) }
			}
			testHoldPID(t, d(t, 3, nil))
		})
	}
}

func testHoldPID(t *testing.T, d *testDaemon) {
	c := newChild(t, os.Getuid())
	a, b := d.dial(), d.dial()
	got := a.Say(fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid), granted5)
	a.Say("CHECK a", granted5)
	a.Conn.Close()
	b.Until("STATUS", `connections=1\b`)
	b.Say("CHECK a", `ERR NOTHELD lock=a : a: not held by this owner on this connection: .*`)
	if again := b.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), granted5); again[0] != got[0] {
		t.Errorf("CHECK found the lease %s, want %s", again[0], got[0])
	}
	b.Say(fmt.Sprintf("EXTEND pid=%d ttl=5s", c.pid), granted5)
	b.Say(fmt.Sprintf("UNLOCK a,b pid=%d", c.pid), `ERR NOTHELD lock=a,b : a,b: not held under these names, but under a: use exactly those`)
	b.Say(fmt.Sprintf("UNLOCK b pid=%d", c.pid), fmt.Sprintf(`ERR NOTHELD lock=b : b: not held by process %d for this user`, c.pid))
	b.Say("WHO a", fmt.Sprintf(`- lock=a .* pid=%d .*`, c.pid))
	b.Want(`OK n=1`)
	b.Send("LOCK a")
	d.dial().Until("LIST", `state=waiting`)
	c.killed()
	b.Want(granted5)
	b.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR NOTHELD .*`)
}

// Without pid=, the lease belongs to the process that connected.
func TestHoldPIDOfThePeer(t *testing.T) {
	d := startDaemon(t, 3, nil)
	a, b := d.dial(), d.dial()
	a.Say("LOCK a hold=pid", granted5)
	a.Say("LOCK b hold=pid", granted5)
	a.Say("UNLOCK a", `OK lock=a`)
	a.Say("UNLOCK a", `ERR NOTHELD .*`)
	a.Conn.Close()
	b.Until("STATUS", `connections=1\b`)
	b.Say("TRY b", `ERR HELD lock=b .*`)
	b.Say(fmt.Sprintf("UNLOCK pid=%d", os.Getpid()), `OK lock=b`)
	b.Say(fmt.Sprintf("UNLOCK pid=%d", os.Getpid()), `ERR NOTHELD : .*`)
	b.Say("TRY b", granted5)
}

// All connections of a process count as one owner.
func TestHoldPIDIsOneOwner(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, other := newChild(t, os.Getuid()), newChild(t, os.Getuid())
	a, b, look := d.dial(), d.dial(), d.dial()
	mine, theirs := fmt.Sprintf(" hold=pid pid=%d", c.pid), fmt.Sprintf(" hold=pid pid=%d", other.pid)
	a.Say("LOCK a reentrant=yes id=1"+mine, granted5+` count=1`)
	b.Say("LOCK a"+mine, fmt.Sprintf(`ERR ALREADY lock=a : a: already held or requested by process %d`, c.pid))
	b.Say("LOCK a id=1 reentrant=yes"+mine, granted5+` count=1 again=yes`)
	b.Say("LOCK a reentrant=yes"+mine, granted5+` count=2`)
	b.Say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a count=1`)
	b.Say("LOCK b"+theirs, granted5)
	b.Say("LOCK b wait=0"+mine, `ERR HELD lock=b .*`)
	b.Say(fmt.Sprintf("CHECK pid=%d", c.pid), granted5)
	b.Say("LOCK c"+mine, granted5)
	b.Say(fmt.Sprintf("CHECK pid=%d", c.pid), `ERR OPTION : .*it holds 2 locks, so a name is needed.*`)
	t.Run("counts outlive connections", func(t *testing.T) {
		w := d.dial()
		w.Say("LOCK n reentrant=yes"+mine, granted5+` count=1`)
		w.Say("LOCK n reentrant=yes"+mine, granted5+` count=2`)
		w.Say("QUIT", `OK`)
		w.Ends()
		look.Until("STATUS", `connections=3\b`)
		b.Say(fmt.Sprintf("UNLOCK n pid=%d", c.pid), `OK lock=n count=1`)
		b.Say(fmt.Sprintf("UNLOCK n pid=%d", c.pid), `OK lock=n`)
	})
	t.Run("deadlock", func(t *testing.T) {
		w := d.dial()
		w.Send("LOCK b" + mine)
		look.Until("LIST", `state=waiting`)
		d.dial().Say("LOCK a"+theirs, `ERR DEADLOCK lock=a : .*`)
		d.dial().Say("LOCK b"+mine, `ERR ALREADY lock=b : .*`)
		other.end()
		w.Want(granted5)
	})
	t.Run("connection and process of one owner", func(t *testing.T) {
		w := d.dial()
		w.Say("LOCK x", granted5)
		w.Say("LOCK x hold=pid", `ERR ALREADY lock=x : .*with another hold=`)
		w.Say("LOCK y hold=pid", granted5)
		w.Say("LOCK y", `ERR ALREADY lock=y : .*with another hold=`)
	})
}

// A LOCK continues to wait after the end of the input while the client reads, but only while its
// process lives.
func TestHoldPIDWaits(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	holder, look, w := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a,b", `OK lock=a,b .*`)
	w.Send("@1 LOCK a hold=pid pid=%d\n@2 LOCK b hold=pid", c.pid)
	look.Until("STATUS", `waiters=2\b`)
	w.EndInput()
	gone := d.dial()
	gone.Send("LOCK a hold=pid note=gone")
	look.Until("LIST", `note=gone`)
	gone.Conn.Close()
	look.Until("STATUS", `waiters=2\b`)
	c.killed()
	w.Want(fmt.Sprintf(`@1 ERR CANCELLED lock=a : process %d, which should hold it, has ended`, c.pid))
	holder.Say("UNLOCK a,b", `OK lock=a,b`)
	w.Want(`@2 ` + granted5)
	w.Ends()
	look.Say("TRY b", `ERR HELD lock=b .*`)
	look.Say(fmt.Sprintf("UNLOCK b pid=%d", os.Getpid()), `OK lock=b`)
}

// LOST is sent on the connection while it is open. CHECK with pid= reports the loss on any
// connection.
func TestHoldPIDLoss(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	a, b := d.dial(), d.dial()
	a.Say(fmt.Sprintf("LOCK a hold=pid pid=%d ttl=1s max=1s", c.pid), granted5)
	a.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), granted5)
	a.Want(`LOST lock=a lease=\S+ reason=max : .*`)
	b.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR LOST lock=a reason=\w+ : .*`)
	a.Conn.Close()
	b.Until("STATUS", `connections=1\b`)
	b.Say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `ERR LOST lock=a reason=\w+ : .*`)
	b.Say(fmt.Sprintf("CHECK pid=%d", c.pid), strings.Replace(granted5, `lock=\S+`, `lock=b`, 1))
	b.Say(fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid), granted5)
	b.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), granted5)
}

// linger= also applies after the end of a process.
func TestHoldPIDLinger(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	a := d.dial()
	a.Say(fmt.Sprintf("LOCK a hold=pid pid=%d linger=300ms", c.pid), granted5)
	ended := redlock.BootTime()
	c.killed()
	d.dial().Say("LOCK a", granted5)
	if lingered := redlock.BootTime() - ended; lingered < 300*time.Millisecond {
		t.Errorf("released %v after its process ended, want 300ms", lingered)
	}
}

// A thousand leases of one process, over several connections, end with the process. The daemon then
// stops watching it.
func TestHoldPIDThousand(t *testing.T) {
	const leases = 1000
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	look, others := d.dial(), pidfds(t, c.pid) // Go's own
	for i := range 4 {
		w := d.dial()
		for j := range leases / 4 {
			w.Send("@%d LOCK %d/%d hold=pid pid=%d ttl=30s", j, i, j, c.pid)
		}
		for range leases / 4 {
			w.Want(`@\d+ ` + granted5)
		}
		w.Conn.Close()
	}
	look.Until("STATUS", fmt.Sprintf(`leases=%d\b.*connections=1\b`, leases))
	if n := pidfds(t, c.pid) - others; n != 1 {
		t.Errorf("%d pidfds for one process, want 1", n)
	}
	c.killed()
	look.Until("STATUS", `leases=0\b`)
	d.AwaitNoKeys()
	if n := pidfds(t, c.pid) - others; n != 0 {
		t.Errorf("%d pidfds remain open, want 0", n)
	}
}

// These processes cannot hold a lock.
func TestHoldPIDRefused(t *testing.T) {
	d := startDaemon(t, 1, nil)
	w, dead := d.dial(), newChild(t, os.Getuid())
	dead.end()
	tids, stop := make(chan int), make(chan struct{})
	defer close(stop)
	onAnotherThread(func() {
		tids <- unix.Gettid()
		<-stop
	})
	thread := <-tids
	for _, test := range []struct{ options, want string }{
		{"hold=pid pid=1", `ERR DENIED lock=a : .*process 1: .*pid 1 lives as long.*redlock run.*`},
		{fmt.Sprintf("hold=pid pid=%d", dead.pid), `ERR OPTION lock=a : .*: there is no such process, .*`},
		{fmt.Sprintf("hold=pid pid=%d", thread), `ERR OPTION lock=a : .*it is a thread.*`},
		{"pid=7", `ERR OPTION : .*pid= needs hold=pid`},
	} {
		w.Say("LOCK a "+test.options, test.want)
	}
	w.Say("UNLOCK a pid=1", `ERR DENIED lock=a : .*pid 1 lives.*`)
	w.Say(fmt.Sprintf("CHECK a pid=%d", dead.pid), `ERR NOTHELD lock=a : .*`)
	if f, err := process.FactsOf(2); err == nil && f.Kernel && os.Getuid() == 0 {
		w.Say("LOCK a hold=pid pid=2", `ERR DENIED lock=a : .*thread of the kernel.*`)
	}
	if keys := d.Keys(); len(keys) > 0 {
		t.Errorf("refused requests left %v on the nodes", keys)
	}
}

// Only root takes locks for processes of other users. No user sees locks that another user took.
func TestHoldPIDUsers(t *testing.T) {
	const alice, bob = 31001, 31002
	if os.Getuid() != 0 {
		t.Skip("only root can connect as two users")
	}
	d := startDaemon(t, 1, func(c *config.Config) { c.Socket.Mode = 0o666 })
	openDir(t, d.Cfg.Socket.Path)
	hers, his, roots := newChild(t, alice), newChild(t, bob), newChild(t, 0)
	a, b, root := d.dialAs(userOf(alice)), d.dialAs(userOf(bob)), d.dial()
	a.Say(fmt.Sprintf("LOCK a hold=pid pid=%d", hers.pid), granted5)
	a.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", his.pid), `ERR DENIED lock=b : .*a process of another user \(root may\)`)
	a.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", roots.pid), `ERR DENIED .*another user.*`)
	b.Say(fmt.Sprintf("UNLOCK a pid=%d", hers.pid), `ERR DENIED lock=a : .*another user.*`)
	b.Say(fmt.Sprintf("CHECK pid=%d", hers.pid), `ERR DENIED : .*another user.*`)
	root.Say(fmt.Sprintf("LOCK r hold=pid pid=%d", hers.pid), granted5)
	root.Say(fmt.Sprintf("CHECK a pid=%d", hers.pid), `ERR NOTHELD lock=a : .*`)
	a.Say(fmt.Sprintf("UNLOCK r pid=%d", hers.pid), `ERR NOTHELD lock=r : .*`)
	root.Say(fmt.Sprintf("UNLOCK r pid=%d", hers.pid), `OK lock=r`)
	a.Say(fmt.Sprintf("UNLOCK a pid=%d", hers.pid), `OK lock=a`)
}

// openDir makes the socket's directory accessible to other users.
func openDir(t *testing.T, socket string) {
	t.Helper()
	if err := os.Chmod(socket[:strings.LastIndexByte(socket, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
}
