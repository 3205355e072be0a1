package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const (
	maxTTL      = 3 * time.Second // of the daemons: the longest lease, and the quarantine
	nodeTimeout = 100 * time.Millisecond
	startWait   = 30 * time.Second
)

// A world is everything that one run starts.
type world struct {
	options options
	dir     string
	network *network // nil: everything on loopback, and no cuts
	binary  string   // redlockd

	nodes   []*node
	daemons []*daemon
	clients []*clientProcess

	mu      sync.Mutex // guards history
	history *history
}

// A node is one redis-server.
type node struct {
	*redlocktest.Server
	port int
}

func newWorld(ctx context.Context, o options) (*world, error) {
	w := &world{options: o, history: newHistory()}
	var err error
	if w.dir, err = os.MkdirTemp("", "nemesis"); err != nil {
		return nil, err
	}
	if o.isolated() {
		if w.network, err = newNetwork(o.daemons); err != nil {
			return w, err
		}
	}
	if o.contender == "redlockd" {
		if w.binary, err = buildDaemon(ctx, w.dir, o.binary); err != nil {
			return w, err
		}
	}
	if err := w.startNodes(); err != nil {
		return w, err
	}
	if o.contender == "redlockd" {
		for i := range o.daemons {
			d := &daemon{world: w, number: i, dir: filepath.Join(w.dir, fmt.Sprintf("d%d", i))}
			if err := d.prepare(); err != nil {
				return w, err
			}
			w.daemons = append(w.daemons, d)
			if err := d.start(); err != nil {
				return w, err
			}
		}
		if err := w.daemons[0].admitAll(); err != nil { // all nodes are new: nobody holds a lock
			return w, err
		}
	}
	for i := range o.clients {
		c := &clientProcess{world: w, number: i}
		w.clients = append(w.clients, c)
		if err := c.start(); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) startNodes() error {
	bind := "127.0.0.1"
	if w.network != nil {
		bind = "0.0.0.0" // of a network namespace that nothing else is in
	}
	for i := range w.options.nodes {
		args := []string{"--bind", bind}
		if i >= 3 { // the others lose all with a restart
			args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
		}
		server, err := redlocktest.LaunchRedis(filepath.Join(w.dir, string(rune('a'+i))), redlocktest.TCP(), redlocktest.Args(args...), redlocktest.Skewable())
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(server.Addr())
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, &node{Server: server, port: number})
	}
	return nil
}

// close ends every process of the run, and removes its files.
func (w *world) close() {
	for _, c := range w.clients {
		c.finish()
	}
	for _, d := range w.daemons {
		d.kill()
		d.unmount()
	}
	for _, n := range w.nodes {
		n.Kill()
	}
	if w.network != nil {
		w.network.close()
	}
	if w.options.keep {
		fmt.Fprintln(os.Stderr, "nemesis: files of this run:", w.dir)
		return
	}
	os.RemoveAll(w.dir)
}

// record takes the lines of a client.
func (w *world) record(client int, line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.add(client, line)
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
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the packages are built, which may be in the cache
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build redlockd: %w: %s", err, text)
	}
	return binary, nil
}

// --- daemons

// A daemon is one redlockd, which plays a host of its own.
type daemon struct {
	world   *world
	number  int
	dir     string // its socket and its state file; a file system of its own if that is allowed
	mounted bool
	process *exec.Cmd
	exited  chan struct{} // closed when process is gone and reaped
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }

// fileSystem is how many bytes the directory of a daemon holds, if it is mounted.
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
	var b strings.Builder
	fmt.Fprintf(&b, "quorum {\n  max_ttl = %q\n  node_timeout = %q\n", maxTTL, nodeTimeout)
	for _, n := range d.world.nodes {
		fmt.Fprintf(&b, "  node %q { address = %q }\n", n.Name(), net.JoinHostPort(d.nodeHost(), strconv.Itoa(n.port)))
	}
	fmt.Fprintf(&b, "}\nsocket { path = %q }\n", d.socket())
	b.WriteString("limits {\n  connections_per_user = 1000\n  waiters_per_user = 10000\n}\n")
	return os.WriteFile(d.config(), []byte(b.String()), 0o600)
}

func (d *daemon) config() string { return filepath.Join(d.world.dir, fmt.Sprintf("d%d.hcl", d.number)) }

// nodeHost is the address under which this daemon reaches the nodes.
func (d *daemon) nodeHost() string {
	if d.world.network == nil {
		return "127.0.0.1"
	}
	return d.world.network.nodesOf(d.number)
}

func (d *daemon) start() error {
	log, err := os.OpenFile(filepath.Join(d.world.dir, fmt.Sprintf("d%d.log", d.number)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := []string{d.world.binary, "-config", d.config()}
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
	go reap(d.process, d.exited) // ends with the process, for which kill waits
	return d.waitReady()
}

func reap(process *exec.Cmd, exited chan<- struct{}) {
	_ = process.Wait() // how it ended is in its log
	close(exited)
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

// ask sends one request over a connection of its own.
func (d *daemon) ask(request string) (string, error) {
	s, err := dialSession(d.socket())
	if err != nil {
		return "", err
	}
	defer s.close()
	return s.(*session).ask(nil, "%s", request)
}

// admitAll ends the quarantine of all nodes that this daemon knows to be in one.
func (d *daemon) admitAll() error {
	deadline := time.After(startWait)
	for {
		answer, err := d.ask("ADMIT all")
		if err == nil && strings.HasPrefix(answer, "OK") && !strings.HasSuffix(answer, "n=0") {
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
	_ = d.process.Process.Kill()
	<-d.exited
}

// terminate ends the daemon as an init system does.
func (d *daemon) terminate() {
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

// --- clients

// A clientProcess is a process of several workers. The nemesis reads what it prints.
type clientProcess struct {
	world   *world
	number  int
	life    int // how often it was started
	process *exec.Cmd
	input   io.Closer
	done    chan struct{} // closed when its output is read and it is reaped
	fault   error         // what was wrong with its output; read after done
}

// clientFlag makes this program a client process.
const clientFlag = "-client-process"

func (c *clientProcess) id() int { return c.number + c.life*c.world.options.clients }

func (c *clientProcess) start() error {
	c.life++
	args := clientArgs{Contender: c.world.options.contender, Workers: c.world.options.workers, Names: c.world.options.names, Seed: c.world.options.seed + uint64(c.id())}
	if len(c.world.daemons) > 0 {
		args.Socket = c.world.daemons[c.number%len(c.world.daemons)].socket()
	}
	for _, n := range c.world.nodes {
		args.Nodes = append(args.Nodes, net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)))
	}
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.process = exec.Command(self, clientFlag, string(text))
	c.process.Stderr = os.Stderr
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.input, err = c.process.StdinPipe(); err != nil {
		return err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.process.Start(); err != nil {
		return err
	}
	c.done = make(chan struct{})
	go c.read(out, c.id()) // ends with the process, for which finish and kill wait
	return nil
}

func (c *clientProcess) read(out io.Reader, id int) {
	defer close(c.done)
	var rest []byte
	buffer := make([]byte, 1<<16)
	for {
		n, err := out.Read(buffer)
		rest = append(rest, buffer[:n]...)
		whole := lastLine(rest)
		for line := range bytes.Lines(whole) {
			if fault := c.world.record(id, line); fault != nil && c.fault == nil {
				c.fault = fmt.Errorf("client %d printed %q: %w", id, line, fault)
			}
		}
		rest = rest[len(whole):]
		if err != nil {
			_ = c.process.Wait() // it was killed, or its input was closed
			return
		}
	}
}

// finish has the workers release what they hold, and waits for the process.
func (c *clientProcess) finish() {
	if c.done == nil {
		return
	}
	c.input.Close()
	select {
	case <-c.done:
	case <-time.After(startWait):
		c.kill()
	}
}

// kill ends the process with SIGKILL. What it held was certainly held until before that.
func (c *clientProcess) kill() {
	at := now()
	_ = c.process.Process.Kill()
	<-c.done
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.history.clientDied(c.id(), at)
}
