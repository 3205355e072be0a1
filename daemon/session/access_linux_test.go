package session

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

// account is a user that a test connects as.
type account struct {
	uid, gid int
	groups   []uint32
}

func userOf(uid int, groups ...uint32) account { return account{uid, uid, groups} }

// startWithRules starts a daemon with access rules, at a socket that every user can open.
func startWithRules(t *testing.T, rules string) *testDaemon {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can connect as other users")
	}
	return startDaemon(t, 3, func(cfg *config.Config) {
		longNodeTimeout(cfg)
		cfg.Access, cfg.Socket.Mode = loadRules(t, rules), 0o666
		if err := os.Chmod(filepath.Dir(cfg.Socket.Path), 0o711); err != nil {
			t.Fatal(err)
		}
	})
}

// dialAs connects as another user. The kernel records the credentials of the thread that connects.
// So a thread takes the identity, connects, and ends.
func (d *testDaemon) dialAs(who account) *wire {
	d.T.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	onAnotherThread(func() {
		err := who.become()
		var conn net.Conn
		if err == nil {
			conn, err = net.Dial("unix", d.Cfg.Socket.Path)
		}
		done <- result{conn, err}
	})
	r := <-done
	if r.err != nil {
		d.T.Fatal(r.err)
	}
	d.T.Cleanup(func() { r.conn.Close() })
	return &wire{daemontest.NewWire(d.T, r.conn.(*net.UnixConn))}
}

// onAnotherThread calls do on a thread that ends afterwards. It never uses the main thread, because
// others see that thread's credentials as the credentials of the process.
func onAnotherThread(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		defer runtime.UnlockOSThread()
		onAnotherThread(do)
	}()
}

// become changes the credentials of this thread only. Package syscall would change those of all
// threads.
func (a account) become() error {
	var first unsafe.Pointer
	if len(a.groups) > 0 {
		first = unsafe.Pointer(&a.groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(a.groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(a.gid), uintptr(a.gid), uintptr(a.gid)); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(a.uid), uintptr(a.uid), uintptr(a.uid)); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}

var (
	web    = userOf(4001)
	batch  = userOf(4002, 7, 4102, 8)
	watch  = userOf(4003)
	ops    = userOf(4004)
	webOps = userOf(4005)
	nobody = userOf(4009)
	root   = userOf(0, 0)
)

func TestAccessEveryVerb(t *testing.T) {
	d := startWithRules(t, exampleRules)
	const lockDenied, inspectDenied, adminDenied = `: not allowed for \w+: no access rule of 5 allows "lock"`, `: not allowed for \w+: no access rule of 5 allows "inspect"`, `: not allowed for \w+: no access rule of 5 allows "admin"`
	for _, c := range []struct {
		who           account
		request, want string
	}{
		{web, "LOCK web/a", granted5},
		{web, "TRY web/b", granted5},
		{web, "LOCK web/a/b", `ERR DENIED lock=web/a/b : LOCK web/a/b` + lockDenied},
		{web, "TRY batch/a", `ERR DENIED lock=batch/a : TRY batch/a` + lockDenied},
		{web, "LOCK web/a,batch/a,web/b,x", `ERR DENIED lock=web/a,batch/a,web/b,x : LOCK batch/a,x` + lockDenied},
		{web, "@7 TRY x", `@7 ERR DENIED lock=x : TRY x` + lockDenied},
		{web, "TRY web/a%2Fb", `ERR DENIED lock=web/a/b : .*`}, // the rules apply to the decoded name
		{web, "WHO web/a", `OK n=0`},
		{web, "WHO batch/a", `ERR DENIED lock=batch/a : WHO batch/a` + inspectDenied},
		{web, "FORCE web/x/y", `OK lock=web/x/y n=0 : .*`},
		{web, "FORCE x", `ERR DENIED lock=x : FORCE x` + adminDenied},
		{web, "ADMIT all", `ERR DENIED : ADMIT \(it concerns every lock, .*` + adminDenied},
		{batch, "LOCK batch/a", granted5},
		{batch, "LOCK batch/a/b", granted5},
		{batch, "WHO batch/a", `ERR DENIED .*` + inspectDenied},
		{account{uid: 4010, gid: 4102}, "LOCK batch/a", granted5},
		{userOf(4010, slices.Repeat([]uint32{9}, 99)...), "TRY batch/a", `ERR DENIED .*`},
		{userOf(4010, append(slices.Repeat([]uint32{9}, 99), 4102)...), "TRY batch/a", granted5},
		{account{uid: 4102, gid: 1}, "TRY batch/a", `ERR DENIED .*`},
		{watch, "WHO batch/a", `OK n=0`},
		{watch, "WHO batch/a/b", `ERR DENIED .*`},
		{watch, "LOCK web/a", `ERR DENIED .*`},
		{watch, "FORCE web/a", `ERR DENIED .*`},
		{ops, "FORCE any/thing", `OK lock=any/thing n=0 : .*`},
		{ops, "ADMIT all", `OK n=0`},
		{ops, "LOCK any/thing", `ERR DENIED .*`},
		{ops, "WHO any/thing", `ERR DENIED .*`},
		{webOps, "FORCE web/x/y", `OK .*`},
		{webOps, "ADMIT a", `ERR DENIED .*`},
		{root, "LOCK web/a", `ERR DENIED lock=web/a : LOCK web/a: not allowed for root: no access rule of 5 allows "lock"`},
		{root, "FORCE web/a", `ERR DENIED .*`},
		{root, "ADMIT all", `ERR DENIED .*`},
		{root, "STATUS", `ERR DENIED : STATUS: not allowed for root: no access rule of 5 is for this user`},
		{nobody, "LOCK web/a", `ERR DENIED .*`},
		{nobody, "LIST", `OK n=0`},
		{nobody, "PING", `OK`},
		{nobody, "HELLO", `OK .*`},
		{nobody, "UNLOCK web/a", `ERR NOTHELD .*`},
		{nobody, "CHECK web/a", `ERR NOTHELD .*`},
		{nobody, "EXTEND web/a ttl=1s", `ERR NOTHELD .*`},
	} {
		w := d.dialAs(c.who)
		switch c.want {
		case granted5, `OK n=0`: // the lock of an earlier client may be released a moment later
			w.Until(c.request, "^"+c.want+"\n$")
		default:
			w.Say(c.request, c.want)
		}
		w.Say("QUIT", "OK")
		w.Ends()
	}
}

// LIST and STATUS show the locks that the client may inspect, and its own.
func TestAccessOfListAndStatus(t *testing.T) {
	d := startWithRules(t, exampleRules)
	a, b, c := d.dialAs(web), d.dialAs(batch), d.dialAs(batch)
	a.Say("LOCK web/a,web/b", granted5)
	b.Say("LOCK batch/a,web/shared,batch/b", granted5)
	c.Send("LOCK batch/b")
	b.Until("LIST", `state=waiting`)

	watcher, none := d.dialAs(watch), d.dialAs(nobody)
	watcher.Say("LIST", `- lock=batch/a,web/shared state=held .*`)
	watcher.Want(`- lock=web/a,web/b state=held .*`)
	watcher.Want(`OK n=2`)
	watcher.Say("STATUS", `- node=a address=\S+ .*`)
	watcher.Line()
	watcher.Line()
	watcher.Want(`OK n=3 nodes=3 .* leases=2 waiters=0 .*`)
	b.Say("LIST", `- lock=batch/a,web/shared,batch/b state=held .*`)
	b.Want(`- lock=batch/b state=waiting .*`)
	b.Want(`OK n=2`)
	b.Until("STATUS", `OK n=3 nodes=3 .* leases=1 waiters=1 `)
	a.Say("LIST", `- lock=web/shared state=held .*`)
	a.Want(`- lock=web/a,web/b state=held .*`)
	a.Want(`OK n=2`)
	none.Say("LIST", `OK n=0`)
}

// If another client holds several names, HELD shows only those that the caller may know.
func TestAccessHeldHidesNames(t *testing.T) {
	d := startWithRules(t, exampleRules)
	a, b := d.dialAs(web), d.dialAs(batch)
	b.Say("LOCK batch/secret,web/shared", granted5)
	a.Say("TRY web/shared", `ERR HELD lock=web/shared .* : web/shared: held by 4002 on \S+ \(pid \d+\)`)
}

// If FORCE takes away a lease with several names, it shows only those that the caller may know.
func TestAccessForceHidesNames(t *testing.T) {
	d := startWithRules(t, exampleRules)
	holder, admin := d.dialAs(batch), d.dialAs(userOf(4005, 4005))
	holder.Say("LOCK batch/secret,web/shared", granted5)
	admin.Say("FORCE web/shared", `OK lock=web/shared n=1 held=\d host=\S+ pid=\d+ user=\S+ since=\d+ : the holder is notified, but may continue to work until it notices`)
}

// HELD and NOQUORUM hide names too, if the other client has several names and has asked the nodes
// already.
func TestAccessWaiterHidesNames(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startWithRules(t, exampleRules)
	a, b := d.dialAs(web), d.dialAs(batch)
	d.another().dialAs(web).Say("LOCK web/shared ttl=2s", granted5)
	b.Send("@1 LOCK batch/secret,web/shared")
	b.Say("@2 PING", `@2 OK`) // now it is in the wait queue
	a.Until("TRY web/shared", `ERR HELD lock=web/shared waiting=yes host=.* : web/shared: 4002 on \S+ \(pid \d+\) asked earlier, and waits for web/shared, which others hold, at least in part\n`)
	d.Nodes.Servers[0].Kill()
	d.Nodes.Servers[1].Kill()
	a.Until("TRY web/shared", `ERR NOQUORUM lock=web/shared .* : web/shared: no quorum: .*`)
}

// DEADLOCK does not show other clients' locks that are part of the cycle.
func TestAccessDeadlockHidesNames(t *testing.T) {
	d := startWithRules(t, exampleRules)
	a, both, b := d.dialAs(web), d.dialAs(userOf(4001, 4102)), d.dialAs(batch)
	a.Say("LOCK web/shared", granted5)
	both.Say("LOCK web/y", granted5)
	b.Say("LOCK batch/secret", granted5)
	both.Send("@1 LOCK batch/secret")
	both.Say("@2 PING", `@2 OK`)
	b.Send("@1 LOCK web/shared")
	b.Say("@2 PING", `@2 OK`)
	a.Say("LOCK web/y", `ERR DEADLOCK lock=web/y : web/y: deadlock: 4001 \(pid \d+\) waits for web/y, which 4001 \(pid \d+\) holds; `+
		`4001 \(pid \d+\) waits for another lock, which 4002 \(pid \d+\) holds; 4002 \(pid \d+\) waits for web/shared, which 4001 \(pid \d+\) holds: .*`)
}

// A client cannot guess a lease's id. A client that knows the id may use the lease, as any user.
func TestAccessLeaseIDs(t *testing.T) {
	d := startWithRules(t, exampleRules)
	owner, thief := d.dialAs(web), d.dialAs(nobody)
	lease := owner.Say("LOCK web/a ttl=20s", granted5)[0]
	for _, id := range []string{lease[1:], lease + "0", strings.ToLower(lease) + "x", "0", strings.Repeat("A", len(lease)), lease[:len(lease)-1] + "!"} {
		for _, verb := range []string{"UNLOCK", "CHECK", "EXTEND"} {
			thief.Say(verb+" lease="+id, `ERR NOTHELD : .*`)
			thief.Say(verb+" web/a lease="+id, `ERR NOTHELD lock=web/a : .*`)
		}
	}
	owner.Say("CHECK web/a", granted5)
	thief.Say("CHECK lease="+lease, granted5)
	thief.Say("UNLOCK lease="+lease, `OK lock=web/a`)
}

// A user cannot reach another user's lease by name, by process, by id= or by the same owner=.
// RESUME, which takes a lease over, does not work even with the right lease id.
func TestAccessOthersLeases(t *testing.T) {
	d := startWithRules(t, exampleRules+"\nrule \"alike\" {\nusers=[\"4006\"]\nlocks=[\"web/*\"]\nallow=[\"lock\", \"inspect\"]\n}")
	owner, thief, alike := d.dialAs(web), d.dialAs(batch), d.dialAs(userOf(4006))
	lease := owner.Say("LOCK web/a ttl=20s id=i owner=o beat=20s", granted5)[0]
	own := fmt.Sprint("pid=", os.Getpid())
	owner.Say("LOCK web/p ttl=20s hold=pid", granted5)
	for _, w := range []*wire{thief, alike, d.dialAs(nobody)} {
		for _, verb := range []string{"UNLOCK", "CHECK", "EXTEND", "BEAT"} {
			w.Say(verb+" web/a", `ERR NOTHELD lock=web/a : .*`)
			w.Say(verb+" web/a owner=o", `ERR NOTHELD lock=web/a : .*`)
			w.Say(verb+" web/p "+own, `ERR (DENIED|NOTHELD) .*`)
			w.Say(verb+" "+own, `ERR (DENIED|NOTHELD) .*`)
		}
		w.Say("RESUME web/a owner=o lease="+lease, `ERR NOTHELD lock=web/a : .*`)
		w.Say("RESUME web/a lease="+lease, `ERR NOTHELD lock=web/a : .*`)
		w.Say("TRY web/a id=i owner=o", `ERR (DENIED|HELD) lock=web/a .*`)
		w.Say("TRY web/a id=i owner=o reentrant=yes", `ERR (DENIED|HELD) lock=web/a .*`)
		w.Say("TRY web/b hold=pid pid=1", `ERR (DENIED|OPTION) .*`)
		w.Say("FORCE web/a", `ERR DENIED lock=web/a .*`)
		w.Say("ADMIT all", `ERR DENIED .*`)
		w.Say("QUIT", `OK`)
		w.Ends()
	}
	owner.Say("BEAT web/a owner=o", `OK lock=web/a`)
	owner.Say("CHECK web/a owner=o", granted5)
	owner.Say("CHECK web/p", granted5)
	d.dialAs(web).Say("RESUME web/a owner=o lease="+lease, granted5)
}

// New rules apply at once, but take no lease away.
func TestAccessReload(t *testing.T) {
	d := startWithRules(t, exampleRules)
	w := d.dialAs(web)
	w.Say("LOCK web/a", granted5)
	w.Say("LOCK web/b ttl=2s", granted5)
	waiter := d.dialAs(web)
	waiter.Send("LOCK web/b")
	w.Until("LIST", `lock=web/b state=waiting`)

	reload := func(rules *config.Access) {
		next := *d.Cfg
		next.Access = rules
		d.Reload <- &next
	}
	reload(loadRules(t, "rule \"ops\" {\nusers=[\"4004\"]\nlocks=[\"**\"]\nallow=[\"lock\"]\n}"))
	w.Until("STATUS", `ERR DENIED .*`)
	w.Say("TRY web/c", `ERR DENIED .*`)
	d.dialAs(ops).Say("TRY web/c", granted5)
	w.Say("CHECK web/a", granted5)
	w.Say("EXTEND web/a ttl=20s", granted5)
	w.Say("LIST", `- lock=web/a state=held .*`)
	w.Want(`- lock=web/b state=held .*`)
	w.Want(`- lock=web/b state=waiting .*`)
	w.Want(`OK n=3`)
	w.Say("STATUS", `ERR DENIED .*`)
	w.Say("UNLOCK web/b", `OK lock=web/b`)
	waiter.Want(granted5) // the earlier rules allowed its request
	w.Say("UNLOCK web/a", `OK lock=web/a`)
	w.Say("LOCK web/a", `ERR DENIED .*`)

	reload(nil)
	w.Until("TRY what/ever", `OK .*`)
	w.Say("FORCE web/a", `ERR DENIED lock=web/a : FORCE: not allowed for 4001: only root and the daemon's own user may, because the config has no access rules`)
}

// socketOfChild is the environment variable that tells a test's child process where to connect.
const socketOfChild = "REDLOCKD_TEST_ACCESS_SOCKET"

// The daemon treats a process that was started as another user as that user.
func TestAccessOfChildProcess(t *testing.T) {
	if socket := os.Getenv(socketOfChild); socket != "" {
		childTries(socket)
		return
	}
	d := startWithRules(t, exampleRules)
	for _, c := range []struct {
		who  syscall.Credential
		want string
	}{
		{syscall.Credential{Uid: 4001, Gid: 4001}, "ERR DENIED lock=batch/a : "},
		{syscall.Credential{Uid: 4002, Gid: 4002, Groups: []uint32{5, 4102}}, "OK lock=batch/a "},
		{syscall.Credential{Uid: 4002, Gid: 4002, NoSetGroups: true}, "ERR DENIED lock=batch/a : "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), daemontest.Patience)
		defer cancel()
		child := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestAccessOfChildProcess$") // another user may execute it under this path
		child.Dir, child.Env = "/", append(os.Environ(), socketOfChild+"="+d.Cfg.Socket.Path)
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &c.who}
		if got, err := child.CombinedOutput(); err != nil || !strings.HasPrefix(string(got), c.want) {
			t.Errorf("%+v: got %q, %v; want %q", c.who, got, err, c.want)
		}
	}
}

func childTries(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(conn, "TRY batch/a")
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(answer)
}
