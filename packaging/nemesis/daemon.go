package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A daemon is one redlockd that stands for a host.
type daemon struct {
	world   *world
	number  int
	dir     string // with its socket and its state file; a file system of its own if that is allowed
	mounted bool
	nodes   []*node // of its config
	leaving []*node // of these, the ones that are not in the new list
	joining []*node // and the ones that are not in the old list
	process *exec.Cmd
	ending  atomic.Bool   // a fault, or the end of the run, is ending the process
	exited  chan struct{} // closed when the process has ended and is reaped

	restarts sync.Mutex // held by a fault that restarts or stops the process
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }

// fileSystem is the size of a daemon's directory if it is mounted, in bytes.
const fileSystem = 64 << 20

// prepare makes the daemon's directory and its config.
func (d *daemon) prepare() error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if d.world.network != nil {
		if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", fileSystem)); err != nil {
			return fmt.Errorf("mount a file system for redlockd: %w", err)
		}
		d.mounted = true
	}
	return d.configure()
}

// configure writes the daemon's config.
func (d *daemon) configure() error {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum {\n  max_ttl = %q\n  node_timeout = %q\n", maxTTL, nodeTimeout)
	for _, n := range d.nodes {
		fmt.Fprintf(&b, "  node %q {\n    address = %q\n    durable = %v\n    joining = %v\n    leaving = %v\n", n.Name(), net.JoinHostPort(d.nodeHost(), strconv.Itoa(n.daemonPort())), d.world.options.durable, slices.Contains(d.joining, n), slices.Contains(d.leaving, n))
		if n.tls > 0 {
			b.WriteString(d.world.certificates.block())
		}
		b.WriteString("  }\n")
	}
	if d.world.options.rivals > 0 {
		b.WriteString("  key_prefix = \"\"\n") // the names of redsync
	}
	fmt.Fprintf(&b, "}\nsocket { path = %q }\n", d.socket())
	b.WriteString("limits {\n  connections_per_user = 1000\n  waiters_per_user = 10000\n}\n")
	return os.WriteFile(d.config(), []byte(b.String()), 0o600)
}

func (d *daemon) log() string { return d.dir + ".log" }

func (d *daemon) config() string { return d.dir + ".hcl" }

// nodeHost returns the address that this daemon uses for the nodes.
func (d *daemon) nodeHost() string {
	if d.world.network == nil {
		return "127.0.0.1"
	}
	return d.world.network.nodesOf(d.number)
}

func (d *daemon) start() error {
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := []string{d.world.binaries[d.number%len(d.world.binaries)], "-config", d.config()}
	if d.world.network != nil {
		command = d.world.network.inside(d.number, command)
	}
	d.process = exec.Command(command[0], command[1:]...)
	d.process.Stdout, d.process.Stderr = log, log
	d.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.process.Start(); err != nil {
		return err
	}
	d.exited = make(chan struct{})
	d.ending.Store(false)
	go d.reap(d.process, d.exited) // ends with the process; kill waits for it
	return d.waitReady()
}

// reap waits for the end of a process, and reports it if the nemesis did not end the process.
func (d *daemon) reap(process *exec.Cmd, exited chan<- struct{}) {
	err := process.Wait()
	if !d.ending.Load() {
		d.world.daemonDied(fmt.Errorf("redlockd %d ended by itself (%v); the end of its log, %s:\n%s", d.number, err, d.log(), tail(d.log(), logShown)))
	}
	close(exited)
}

// logShown is how many bytes of a daemon's log are shown if it ended by itself.
const logShown = 4 << 10

// tail returns the end of a file.
func tail(path string, most int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

func (d *daemon) waitReady() error {
	deadline := time.After(startWait)
	for {
		if answer, err := d.ask("PING"); err == nil && strings.HasPrefix(answer, "OK") {
			return nil
		}
		select {
		case <-d.exited:
			return fmt.Errorf("redlockd %d ended as it started: see its log in %s", d.number, d.world.dir)
		case <-deadline:
			return fmt.Errorf("redlockd %d did not answer PING within %v", d.number, startWait)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// startBeside starts another daemon with these nodes beside the one with that number. end ends it.
func (w *world) startBeside(name string, number int, nodes []*node) (d *daemon, end func(), err error) {
	d = &daemon{world: w, number: number, nodes: nodes, dir: filepath.Join(w.dir, name+strconv.Itoa(number))}
	if err := d.prepare(); err != nil {
		return nil, nil, err
	}
	end = func() {
		d.kill()
		d.unmount()
	}
	if err := d.start(); err != nil {
		end()
		return nil, nil, err
	}
	return d, end, nil
}

// ask sends one request over a connection of its own.
func (d *daemon) ask(request string) (string, error) {
	s, err := dialSession(d.socket())
	if err != nil {
		return "", err
	}
	defer s.close()
	return s.(*session).ask(nil, "%s", request)
}

// setNodes restarts the daemon with other nodes in its config.
func (d *daemon) setNodes(nodes, joining, leaving []*node) error {
	d.restarts.Lock()
	defer d.restarts.Unlock()
	d.nodes, d.joining, d.leaving = nodes, joining, leaving
	return d.restart()
}

// restart restarts the daemon with its config. The caller holds restarts.
func (d *daemon) restart() error {
	if err := d.configure(); err != nil {
		return err
	}
	d.terminate()
	return d.start()
}

// reload gives the running daemon its config. The caller holds restarts.
func (d *daemon) reload() error {
	if err := d.configure(); err != nil {
		return err
	}
	return d.process.Process.Signal(syscall.SIGHUP)
}

// admitAll ends the quarantine of all nodes that this daemon has in quarantine.
func (d *daemon) admitAll() error {
	deadline := time.After(startWait)
	for {
		answer, err := d.ask("ADMIT all")
		if err == nil && strings.HasPrefix(answer, "OK") { // n=0: the nodes are not connected yet, or admitted already
			if answer, err = d.ask("TRY nemesis-ready"); err == nil && strings.HasPrefix(answer, "OK") {
				return nil
			}
		}
		select {
		case <-deadline:
			return fmt.Errorf("no quorum within %v: %s %w", startWait, answer, errors.Join(err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *daemon) kill() {
	if d.process == nil || d.process.Process == nil {
		return
	}
	d.ending.Store(true)
	_ = d.process.Process.Kill()
	<-d.exited
}

// terminate ends the daemon as an init system does.
func (d *daemon) terminate() {
	d.ending.Store(true)
	_ = d.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(startWait):
		d.kill()
	}
}

func (d *daemon) unmount() {
	if d.mounted {
		_ = syscall.Unmount(d.dir, 0)
	}
}

// buildDaemon returns the path of redlockd, built from this checkout unless one is given.
func buildDaemon(ctx context.Context, dir, given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	root, err := commandOutput("go", "list", "-m", "-f", "{{.Dir}}", "github.com/redlockd/redlockd")
	if err != nil {
		return "", fmt.Errorf("find the redlockd module (run this in packaging/nemesis): %w", err)
	}
	binary := filepath.Join(dir, "redlockd")
	build := exec.CommandContext(ctx, "go", "build", "-race=false", "-trimpath", "-o", binary, "./cmd/redlockd")
	build.Dir = strings.TrimSpace(root)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the packages are built, so it may be in the cache
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build redlockd: %w: %s", err, text)
	}
	return binary, nil
}
