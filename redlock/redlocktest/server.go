package redlocktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

const (
	startTimeout = time.Minute          // from exec to the first PONG, on a busy machine
	retryPause   = 2 * time.Millisecond // between two checks of a server that is starting or stopping
	portTries    = 5                    // another process may take the port meanwhile
)

// Server is one redis-server process. It stores nothing on disk, unless Args say otherwise. Do not
// call other methods while Kill, Restart, Stop or Cont runs.
type Server struct {
	name    string
	dir     string
	port    int // 0: it listens on a unix socket in dir
	useTCP  bool
	extra   []string
	prepare []func(*Server, *exec.Cmd) error // change each process before it starts
	run     *process                         // the last process
}

// process is one run of a Server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and reaped
}

// Option changes how a Server is started.
type Option func(*Server)

// TCP makes the server listen on a free port of 127.0.0.1 instead of a unix socket.
func TCP() Option { return func(s *Server) { s.useTCP = true } }

// Args adds arguments of redis-server, such as "--maxmemory", "10mb".
func Args(args ...string) Option {
	return func(s *Server) { s.extra = append(s.extra, args...) }
}

// LaunchRedis starts a redis-server with its socket and log in dir, and waits until it answers
// PING. The server's name is the last element of dir. The caller must call Kill. dir must be short,
// because the path of a unix socket has at most about 100 bytes.
func LaunchRedis(dir string, options ...Option) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Server{name: filepath.Base(dir), dir: dir}
	for _, option := range options {
		option(s)
	}
	for try := 1; ; try++ {
		err := s.launch()
		if err == nil || !s.useTCP || try == portTries {
			return s, err
		}
	}
}

// launch starts the process for the first time, on a new port if it uses TCP.
func (s *Server) launch() error {
	if s.useTCP {
		port, err := FreePort()
		if err != nil {
			return err
		}
		s.port = port
	}
	return s.start()
}

// chosenPorts has every port that FreePort has returned.
var chosenPorts sync.Map

// FreePort returns a TCP port that is free on 127.0.0.1 now. It never returns a port twice, so two
// servers of one process do not get the same one before either listens.
func FreePort() (int, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if _, known := chosenPorts.LoadOrStore(port, true); !known {
			return port, nil
		}
	}
}

// serverProgram returns $REDIS_SERVER, for example valkey-server. The default is redis-server.
func serverProgram() string { return cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server") }

// start starts the process and waits for its first PONG. On failure it leaves no process.
func (s *Server) start() error {
	binary, err := exec.LookPath(serverProgram())
	if err != nil {
		return fmt.Errorf("%s is not installed (Debian: apt-get install redis-server, macOS: brew install redis): %w", serverProgram(), err)
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(binary, s.arguments()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	dieWithParent(cmd)
	for _, prepare := range s.prepare {
		if err := prepare(s, cmd); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("redis-server %s: %w", s.name, err)
	}
	s.run = &process{cmd: cmd, exited: make(chan struct{})}
	go s.run.reap() // ends when the process ends; Kill waits for it
	return s.waitReady()
}

func (s *Server) arguments() []string {
	args := []string{"--port", strconv.Itoa(s.port)}
	if s.useTCP {
		args = append(args, "--bind", "127.0.0.1")
	} else {
		args = append(args, "--unixsocket", s.socketPath())
	}
	args = append(args, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--loglevel", "warning", "--protected-mode", "no")
	return append(args, s.extra...)
}

func (p *process) reap() {
	_ = p.cmd.Wait() // the log shows how it ended
	close(p.exited)
}

func (s *Server) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		reply, err := s.ask(ctx, "PING")
		if err == nil && reply.Str == "PONG" {
			return nil
		}
		select {
		case <-s.run.exited:
			return fmt.Errorf("redis-server %s ended at once: %s", s.name, s.Log())
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("redis-server %s did not answer PING within %v (%w): %s", s.name, startTimeout, err, s.Log())
		case <-time.After(retryPause):
		}
	}
}

// Name returns the server's name: the last element of its directory.
func (s *Server) Name() string { return s.name }

// Addr returns "unix:/path" or "127.0.0.1:port". A restart does not change it.
func (s *Server) Addr() string {
	if s.useTCP {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	}
	return "unix:" + s.socketPath()
}

// Node returns the server as a node of package redlock's driver.
func (s *Server) Node() redlock.Node {
	return redlock.RedisNode(redlock.NodeOptions{Name: s.name, Address: s.Addr()})
}

// PID returns the id of the last process.
func (s *Server) PID() int { return s.run.cmd.Process.Pid }

// Log returns what all processes of the server have printed.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}

func (s *Server) socketPath() string { return filepath.Join(s.dir, "s") }
func (s *Server) logPath() string    { return filepath.Join(s.dir, "log") }

// Kill ends the process with SIGKILL, even if it is stopped, and waits until it is gone. Its data
// is lost.
func (s *Server) Kill() {
	if s.run == nil {
		return
	}
	_ = s.run.cmd.Process.Kill() // fails only if the process has ended already
	<-s.run.exited
}

// Restart starts the server again at its address, with a new run_id, and waits until it answers.
// The server is empty, unless Args made it write to disk. If the process still runs, Restart kills
// it first.
func (s *Server) Restart() error {
	s.Kill()
	return s.start()
}

// Stop stops the process with SIGSTOP, and waits until it has stopped. The kernel still accepts
// connections and bytes, but nothing processes them until Cont.
func (s *Server) Stop() error {
	if err := Pause(s.run.cmd.Process); err != nil {
		return fmt.Errorf("redis-server %s: SIGSTOP: %w", s.name, err)
	}
	return nil
}

// Cont resumes a stopped process.
func (s *Server) Cont() error {
	if err := resume(s.run.cmd.Process); err != nil {
		return fmt.Errorf("redis-server %s: SIGCONT: %w", s.name, err)
	}
	return nil
}

// CPUSeconds returns the CPU time of the running process, in user and kernel mode.
func (s *Server) CPUSeconds() (float64, error) { return cpuSeconds(s.PID()) }

// launchAll starts n servers in parallel in dir/a, dir/b and so on. On failure it leaves none
// running.
func launchAll(dir string, n int, options []Option) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = LaunchRedis(filepath.Join(dir, nodeName(i)), options...) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		killAll(servers)
	}
	return servers, err
}

func killAll(servers []*Server) {
	for _, s := range servers {
		if s != nil {
			s.Kill()
		}
	}
}

// nodeName returns a, b, … z, n26, n27 …
func nodeName(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return "n" + strconv.Itoa(i)
}

// tail returns the last lines of text.
func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
