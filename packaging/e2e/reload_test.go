//go:build linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// reloaded is a daemon whose config changes while it runs.
type reloaded struct {
	*host
	cluster *redlocktest.Cluster
	daemon  *process
}

// reloadedDaemons are a daemon that was started by hand, and one whose connections a manager keeps.
func reloadedDaemons(t *testing.T, test func(t *testing.T, r reloaded)) {
	t.Parallel()
	run := func(t *testing.T, r reloaded) {
		t.Cleanup(func() {
			if t.Failed() {
				select {
				case <-r.daemon.exited:
					t.Logf("the daemon ended: %v", r.daemon.cmd.ProcessState)
				default:
				}
				t.Logf("the daemon's log:\n%s", r.daemon.stderr.text())
			}
		})
		test(t, r)
	}
	t.Run("by hand", func(t *testing.T) {
		cluster, h, d := five(t)
		run(t, reloaded{h, cluster, d})
	})
	t.Run("with a manager", func(t *testing.T) {
		s := startSuccession(t, 100)
		run(t, reloaded{s.host, s.cluster, s.daemon})
	})
}

// A change of the config that needs another process ends nothing: neither leases, nor waiters in
// their order, nor connections, nor lines that are half typed.
func TestReloadInPlace(t *testing.T) {
	reloadedDaemons(t, func(t *testing.T, r reloaded) {
		holder, idle, typist := r.nc(), r.nc(), r.nc()
		granted := holder.expect("LOCK job ttl=20s note=mine", "OK lock=job")
		worker := start(t, "", "sleep", "1000")
		idle.expect("LOCK kept hold=pid pid="+strconv.Itoa(worker.cmd.Process.Pid), "OK lock=kept")
		idle.expect("LOCK long ttl=40s", "ERR OPTION lock=long")
		waiters := waitInOrder(t, idle, r.nc)
		typist.expect("PING", "OK")
		typist.begin("LOCK typed wai")

		r.configure(r.cluster, []string{`max_ttl = "60s"`})
		r.daemon.signal(syscall.SIGHUP)
		awaitLog(r.daemon, "restarting in place: leases, waiters and connections continue")
		young := r.nc() // waits in the socket, or is too young for the manager
		for _, n := range append([]*terminal{holder, idle, typist}, waiters...) {
			n.comes("BACK")
		}
		if line := young.ask("PING"); strings.HasPrefix(line, "BACK") {
			young.comes("OK")
		} else if line != "OK" {
			t.Errorf("a client that connected during the restart got %q, want OK", line)
		}
		same(t, holder.expect("CHECK job", "OK lock=job"), granted)
		typist.expect("t=0", "OK lock=typed")
		idle.expect("LOCK long ttl=40s", "OK lock=long") // the new max_ttl
		young.expect("LOCK kept wait=0", "ERR HELD lock=kept")
		holder.expect("UNLOCK job", "OK lock=job")
		grantInOrder(t, granted, waiters)
		worker.kill()
		young.expect("LOCK kept wait=5s", "OK lock=kept")
		typist.kill() // its end releases its lock, as without the restart
		idle.expect("LOCK typed wait=5s", "OK lock=typed")
		checkName(t, r.daemon)
	})
}

// checkName checks that ps and pgrep still find the process by its name.
func checkName(t *testing.T, d *process) {
	t.Helper()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", d.cmd.Process.Pid))
	if string(name) != "redlockd\n" {
		t.Errorf("the process is called %q (%v), want redlockd", name, err)
	}
}

// Signals that arrive at any point of a restart in place do no harm. A client that ends at any point
// releases its locks.
func TestReloadInPlaceManyTimes(t *testing.T) {
	reloadedDaemons(t, func(t *testing.T, r reloaded) {
		holder, waiter := r.nc(), r.nc()
		granted := holder.expect("LOCK job ttl=20s", "OK lock=job")
		waiter.send("LOCK job")
		waitFor(t, "it waits", func() bool { return holder.waiters() == 1 })
		for i := range rounds(5, 50) {
			r.configure(r.cluster, []string{fmt.Sprintf("max_ttl = %q", fmt.Sprint(31+i%2, "s"))})
			for range 3 { // the signals arrive while it stops, while it starts, and while it serves
				r.daemon.signal(syscall.SIGHUP)
			}
			holder.comes("BACK")
			waiter.comes("BACK")
			same(t, holder.expect("CHECK job", "OK lock=job"), granted)
			gone := r.nc()
			gone.expect("LOCK gone wait=5s", "OK lock=gone")
			gone.kill()
		}
		holder.kill()
		waiter.comes("OK lock=job")
	})
}

// What would break locks, or keep a new process from starting, is refused: the daemon continues.
func TestReloadRefused(t *testing.T) {
	reloadedDaemons(t, func(t *testing.T, r reloaded) {
		holder := r.nc()
		granted := holder.expect("LOCK job ttl=20s", "OK lock=job")
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		const refused = "config not reloaded: the old one stays in effect"
		for _, c := range []struct {
			want   string
			change func()
		}{
			{"quorum.key_prefix cannot change", func() { r.configure(r.cluster, []string{`key_prefix = "other:"`}) }},
			{"the list of nodes cannot change", func() { r.configure(&redlocktest.Cluster{Servers: r.cluster.Servers[:3]}, nil) }},
			{"address already in use", func() { r.append("metrics { address = %q }\n", other.Addr()) }},
			{"quorum.max_ttl: wanted", func() { r.configure(r.cluster, []string{`max_ttl = "many"`}) }},
			{"password_file: wanted a file", func() {
				r.configure(r.cluster, []string{`node "x" {`, `address = "127.0.0.1:1"`, `password_file = "none"`, `}`})
			}},
			{"its state file was removed or cut short", func() { r.cutStateFile(); r.configure(r.cluster, []string{`max_ttl = "33s"`}) }},
		} {
			r.configure(r.cluster, nil)
			c.change()
			r.daemon.signal(syscall.SIGHUP)
			if line := awaitLog(r.daemon, refused); !strings.Contains(line, c.want) {
				t.Errorf("got %s, want %q", line, c.want)
			}
		}
		same(t, holder.expect("CHECK job", "OK lock=job"), granted)
	})
}

func (r reloaded) append(format string, args ...any) {
	r.t.Helper()
	writeFile(r.t, r.config, readFile(r.t, r.config)+fmt.Sprintf(format, args...))
}

// cutStateFile makes the state file useless for another process.
func (r reloaded) cutStateFile() {
	r.t.Helper()
	files, err := filepath.Glob(r.socket + ".table.*")
	if err != nil || len(files) == 0 {
		r.t.Fatalf("no state file: %v, %v", files, err)
	}
	for _, file := range files {
		if err := os.Truncate(file, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	awaitLog(r.daemon, "the state file cannot be written")
}

// Metrics are served at another address, or another spelling of the same one, and then no longer. The
// socket gets another mode.
func TestReloadListeners(t *testing.T) {
	t.Parallel()
	cluster, h, d := five(t)
	r := reloaded{h, cluster, d}
	holder := r.nc()
	granted := holder.expect("LOCK job ttl=20s", "OK lock=job")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	for _, address := range []string{"127.0.0.1:" + port, "localhost:" + port} {
		r.configure(cluster, nil)
		r.append("metrics { address = %q }\n", address)
		d.signal(syscall.SIGHUP)
		holder.comes("BACK")
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	writeFile(t, r.config, strings.Replace(readFile(t, r.config), "0666", "0600", 1))
	d.signal(syscall.SIGHUP)
	holder.comes("BACK")
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v, %v; want 0600", info.Mode(), err)
	}
	if _, err := http.Get("http://127.0.0.1:" + port + "/healthz"); err != nil {
		t.Error(err)
	}
	same(t, holder.expect("CHECK job", "OK lock=job"), granted)
	writeFile(t, r.config, strings.Replace(readFile(t, r.config), r.socket, r.socket+"2", 1))
	d.signal(syscall.SIGHUP)
	if line := awaitLog(d, "config not reloaded"); !strings.Contains(line, "socket.path cannot change while locks are held") {
		t.Errorf("got %s, want a refusal of the path", line)
	}
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d, want 0; its log:\n%s", code, d.stderr.text())
	}
	if _, err := os.Stat(r.socket); !os.IsNotExist(err) {
		t.Errorf("the daemon has left its socket: %v", err)
	}
}

// If another program is at the path of the daemon's, as after an upgrade, the running version
// continues: another version may not read its state.
func TestReloadAfterUpgrade(t *testing.T) {
	needNC(t)
	t.Parallel()
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	h := newHost(t, cluster)
	program := filepath.Join(h.dir, "redlockd")
	if err := os.WriteFile(program, readBytes(t, filepath.Join(binaries, "redlockd")), 0o700); err != nil {
		t.Fatal(err)
	}
	d := start(t, h.dir, program, "-config", h.config)
	awaitLog(d, "serving: ")
	r := reloaded{h, cluster, d}
	holder := r.nc()
	granted := holder.expect("LOCK job ttl=20s", "OK lock=job")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i == 1 {
			writeFile(t, program, "#!/bin/sh\nexit 1\n")
		}
		r.configure(cluster, []string{fmt.Sprintf("max_ttl = %q", fmt.Sprint(31+i, "s"))})
		d.signal(syscall.SIGHUP)
		awaitLog(d, "another redlockd is installed, but this version continues")
		holder.comes("BACK")
		same(t, holder.expect("CHECK job", "OK lock=job"), granted)
		checkName(t, d)
	}
}

// reloadInPlace: a reload that replaces the process keeps everything. systemd sees one process that
// reloads. Its watchdog is still notified, and its store has each connection once.
func (i *installation) reloadInPlace() {
	i.t.Helper()
	t := i.t
	const file = "/etc/redlockd/redlockd.hcl"
	config := readFile(t, i.path(file))
	change := func(ttl int) { writeFile(t, i.path(file), config+fmt.Sprintf("lease { ttl = \"%ds\" }\n", ttl)) }

	holder, waiter := i.host.nc(), i.host.nc()
	granted := holder.expect("LOCK job wait=20s ttl=30s", "OK lock=job")
	waiter.send("LOCK job")
	waitFor(t, "it waits", func() bool { return holder.waiters() == 1 })
	restarts := i.property("redlockd", "NRestarts")
	pid := i.property("redlockd", "MainPID")
	for round, units := range [][]string{nil, {"[Service]", "Type=notify-reload", "ExecReload="}} {
		if units != nil && i.property("redlockd", "ReloadSignal") == "" {
			break // systemd is too old
		}
		if units != nil {
			i.dropIn(units...)
			defer i.dropIn()
			holder.comes("BACK")
			waiter.comes("BACK")
			pid = i.property("redlockd", "MainPID")
		}
		before := i.watchdog()
		change(11 + round)
		i.run("systemctl", "reload", "redlockd")
		holder.comes("BACK")
		waiter.comes("BACK")
		same(t, holder.expect("CHECK job", "OK lock=job"), granted)
		waitFor(t, "the reload is over", func() bool { return i.property("redlockd", "ActiveState") == "active" })
		if got := i.property("redlockd", "MainPID"); got != pid {
			t.Errorf("the reload made process %s of %s", got, pid)
		}
		waitFor(t, "the watchdog is notified", func() bool { return i.watchdog() > before })
		waitFor(t, "each connection is stored once, and the mark", func() bool {
			status := holder.lines("STATUS")
			return i.property("redlockd", "NFileDescriptorStore") == strconv.FormatInt(number(t, status[len(status)-1], "connections")+1, 10)
		})
		if got := i.property("redlockd", "NRestarts"); got != restarts {
			t.Errorf("systemd has restarted it %s times, %s before", got, restarts)
		}
	}
	i.run("systemctl", "restart", "redlockd")
	holder.comes("BACK")
	waiter.comes("BACK")
	holder.expect("UNLOCK job", "OK lock=job")
	waiter.comes("OK lock=job")
	change(0)
	i.run("systemctl", "reload", "redlockd")
	i.journalHas("config not reloaded: the old one stays in effect")
	waitFor(t, "the reload is over", func() bool { return i.property("redlockd", "ActiveState") == "active" })
	waiter.expect("UNLOCK job", "OK lock=job")
	writeFile(t, i.path(file), config)
	i.run("systemctl", "reload", "redlockd") // returns before redlockd has replaced itself
	holder.comes("BACK")
	waiter.comes("BACK")
	holder.kill()
	waiter.kill()
}

// watchdog returns when the watchdog was notified.
func (i *installation) watchdog() int {
	i.t.Helper()
	at, err := strconv.Atoi(i.property("redlockd", "WatchdogTimestampMonotonic"))
	if err != nil {
		i.t.Fatal(err)
	}
	return at
}
