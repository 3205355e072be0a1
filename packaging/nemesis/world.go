package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const (
	maxTTL      = 2 * time.Second // of the daemons: the longest lease, and the length of a quarantine
	nodeTimeout = 100 * time.Millisecond
	startWait   = 2 * time.Minute
)

// A world is everything that one run starts.
type world struct {
	options  options
	dir      string
	faultLog *os.File // one line for each fault
	network  *network // nil: everything uses loopback, without cuts
	binaries []string // of redlockd, for the daemons in turn

	nodes        []*node
	daemons      []*daemon
	clients      []*clientProcess
	certificates *certificates       // nil without -tls
	store        *redlocktest.Server // for the work under the locks; nil: none
	calm         chan calmReport     // of the workers, after the last fault
	calmest      time.Duration       // the longest wait after the last fault
	change       nodeChange          // belongs to the fault that has all daemons

	mu      sync.Mutex // guards the fields below
	history *history
	record  *recorder   // nil without -record
	failed  []violation // seen during the run
	died    error       // why the first daemon ended that no fault had ended
}

// A node is one redis-server.
type node struct {
	*redlocktest.Server
	port  int
	tls   int           // the port for the daemons; 0: port
	ahead time.Duration // offset of its clock; belongs to the fault that has the node
}

// daemonPort is the port that the daemons use.
func (n *node) daemonPort() int { return cmp.Or(n.tls, n.port) }

func newWorld(ctx context.Context, o options) (*world, error) {
	w := &world{options: o, history: newHistory(), calm: make(chan calmReport, o.clients*o.workers)}
	var err error
	if w.dir, err = os.MkdirTemp("", "nemesis"); err != nil {
		return nil, err
	}
	if w.faultLog, err = os.Create(filepath.Join(w.dir, "faults.log")); err != nil {
		return w, err
	}
	if o.isolated() {
		if w.network, err = newNetwork(o.daemons); err != nil {
			return w, err
		}
	}
	if o.contender == "redlockd" {
		binary, err := buildDaemon(ctx, w.dir, o.binary)
		if err != nil {
			return w, err
		}
		w.binaries = []string{binary}
		if o.other != "" {
			other, err := filepath.Abs(o.other)
			if err != nil {
				return w, err
			}
			w.binaries = append(w.binaries, other)
		}
	}
	if err := w.startNodes(); err != nil {
		return w, err
	}
	if o.contender == "redlockd" {
		for i := range o.daemons {
			d := &daemon{world: w, number: i, nodes: w.nodes, dir: filepath.Join(w.dir, fmt.Sprintf("d%d", i))}
			if err := d.prepare(); err != nil {
				return w, err
			}
			w.daemons = append(w.daemons, d)
			if err := d.start(); err != nil {
				return w, err
			}
		}
		if err := w.daemons[0].admitAll(); err != nil { // all nodes are new, so no client holds a lock
			return w, err
		}
	}
	if o.contender == "redlockd" {
		server, err := redlocktest.LaunchRedis(filepath.Join(w.dir, "store"), redlocktest.TCP())
		if err != nil {
			return w, err
		}
		w.store = server
	}
	if o.record != "" {
		if w.record, err = newRecorder(o.record); err != nil {
			return w, err
		}
		w.record.write(recordLine{At: now(), Header: &recordHeader{Format: formatVersion, Command: slices.DeleteFunc(slices.Clone(os.Args[1:]), func(one string) bool { return one == "-inside" }), Server: serverVersion(w.nodes[0])}})
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
		bind = "0.0.0.0" // in a network namespace of its own
	}
	if w.options.tls {
		var err error
		if w.certificates, err = newCertificates(w.dir); err != nil {
			return err
		}
	}
	for i := range w.options.nodes {
		args := []string{"--bind", bind}
		secure := 0
		if w.certificates != nil {
			var err error
			if secure, err = redlocktest.FreePort(); err != nil {
				return err
			}
			args = append(args, w.certificates.arguments(secure)...)
		}
		options := []redlocktest.Option{redlocktest.TCP(), redlocktest.Skewable()}
		if w.options.durable {
			args = append(args, "--appendonly", "yes", "--appendfsync", "always")
			options = append(options, redlocktest.Unplugged())
		} else if i >= 3 { // the others lose everything in a restart
			args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
		}
		server, err := redlocktest.LaunchRedis(filepath.Join(w.dir, string(rune('a'+i))), append(options, redlocktest.Args(args...))...)
		if err != nil {
			return err
		}
		if rates := w.options.rates; len(rates) > 0 {
			if err := server.SetClockRate(rates[i%len(rates)]); err != nil {
				return err
			}
		}
		_, port, err := net.SplitHostPort(server.Addr())
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, &node{Server: server, port: number, tls: secure})
	}
	return nil
}

// finishClients lets the workers release their locks, and waits for their processes.
func (w *world) finishClients() {
	for _, c := range w.clients {
		c.stop()
	}
	for _, c := range w.clients {
		c.finish()
	}
}

// close ends every process of the run, and removes its files.
func (w *world) close() {
	w.finishClients()
	for _, d := range w.daemons {
		d.kill()
		d.unmount()
	}
	for _, n := range w.nodes {
		n.Kill()
	}
	if w.store != nil {
		w.store.Kill()
	}
	if w.network != nil {
		w.network.close()
	}
	if w.faultLog != nil {
		w.faultLog.Close()
	}
	if w.options.keep || w.ended() != nil {
		fmt.Fprintln(os.Stderr, "nemesis: files of this run:", w.dir)
		return
	}
	os.RemoveAll(w.dir)
}

// hear takes a line of a client.
func (w *world) hear(client int, text []byte) error {
	var line clientLine
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	switch {
	case line.Hold != nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		at := now()
		w.record.write(recordLine{At: at, Client: client, Hold: line.Hold})
		return w.history.add(client, line.Hold, at)
	case line.Calm != nil:
		w.calm <- *line.Calm
	case line.Late != "":
		w.fail(violation{name: fmt.Sprint("client ", client), what: line.Late})
	default:
		return errors.New(line.Fault)
	}
	return nil
}

// heldBy returns how many locks a client process holds now.
func (w *world) heldBy(c *clientProcess) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.open[c.id()]
}

// heldThrough returns how many locks the clients of a daemon hold now.
func (w *world) heldThrough(d *daemon) (held int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for client, open := range w.history.open {
		if client >= lateHosts { // of another daemon
			continue
		}
		number := client % w.options.clients
		if number%w.options.daemons == d.number && !w.clients[number].isRival() {
			held += open
		}
	}
	return held
}

func (w *world) heldName() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.heldName()
}

// daemonDied records that a daemon ended although no fault ended it. Its files are kept.
func (w *world) daemonDied(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.died == nil {
		w.died = err
	}
}

// ended returns why a daemon ended by itself, or nil.
func (w *world) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.died
}

func (w *world) excuse(one excuse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.write(recordLine{At: now(), Excuse: &one})
	w.history.excuse(one)
}

func (w *world) fail(one violation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, one)
}

// --- clients

// A clientProcess is a process with several workers. The nemesis reads its output.
type clientProcess struct {
	world   *world
	number  int
	life    int // number of its starts; guarded by the world's mu
	process *exec.Cmd
	input   io.WriteCloser
	done    chan struct{} // closed when its output is read and it is reaped
	fault   error         // error of its output; read it after done
}

// clientFlag runs this program as a client process.
const clientFlag = "-client-process"

// isRival reports whether the client uses redsync, and others redlockd. The last ones do.
func (c *clientProcess) isRival() bool {
	return c.number >= c.world.options.clients-c.world.options.rivals
}

func (c *clientProcess) contender() string {
	if c.isRival() {
		return "redsync"
	}
	return c.world.options.contender
}

func (c *clientProcess) id() int { return c.number + c.life*c.world.options.clients }

func (c *clientProcess) start() error {
	c.world.mu.Lock() // because heldBy reads it
	c.life++
	c.world.mu.Unlock()
	args := clientArgs{Contender: c.contender(), Rival: c.isRival(), Workers: c.world.options.workers, Names: c.world.options.names, Host: c.number % c.world.options.daemons, Hosts: c.world.options.daemons, Seed: c.world.options.seed + uint64(c.id())}
	if c.world.store != nil && !c.isRival() {
		args.Store = c.world.store.Addr()
	}
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
	go c.read(out, c.id()) // ends with the process; finish and kill wait for it
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
			if fault := c.world.hear(id, line); fault != nil && c.fault == nil {
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

// stop lets the workers end after their current lock.
func (c *clientProcess) stop() {
	if c.input != nil {
		c.input.Close()
	}
}

// finish waits for the process after stop.
func (c *clientProcess) finish() {
	if c.done == nil {
		return
	}
	select {
	case <-c.done:
	case <-time.After(startWait):
		c.kill()
	}
}

// kill ends the process with SIGKILL, and returns how many locks it held. They were certainly held
// until just before.
func (c *clientProcess) kill() (held int) {
	at := now()
	_ = c.process.Process.Kill()
	<-c.done
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.record.write(recordLine{At: at, Client: c.id(), Died: true})
	return c.world.history.clientDied(c.id(), at)
}
