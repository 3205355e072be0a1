package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// child is a process that this benchmark started. It is ended by its pid or, if the benchmark is
// killed, by the kernel.
type child struct {
	name   string
	cmd    *exec.Cmd
	log    string        // the file with its output
	exited chan struct{} // closed when it has ended and is reaped
}

// startChild starts argv with its output in dir/name.log.
func startChild(dir, name string, argv ...string) (*child, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	c := &child{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: log.Name(), exited: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir = log, log, dir
	// A group of its own, because this program handles a Ctrl-C in the terminal.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the child; kill and terminate wait for it
		_ = c.cmd.Wait() // the log has the reason
		close(c.exited)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill kills the child and waits for its end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only if it has already ended
	<-c.exited
}

// terminate sends SIGTERM to the child and waits for its end; after limit it kills the child.
func (c *child) terminate(limit time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has already ended
	select {
	case <-c.exited:
		return nil
	case <-time.After(limit):
		c.kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", c.name, limit)
	}
}

// failed returns err with the end of the child's output.
func (c *child) failed(err error) error {
	out, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := strings.Join(lines[max(0, len(lines)-10):], "\n\t")
	return fmt.Errorf("%s: %w; its last words:\n\t%s", c.name, err, last)
}

// errEnded ends a poll at once: the process has ended.
var errEnded = errors.New("it ended")

// ready polls until answers returns nil, and fails early if the child ends.
func (c *child) ready(limit time.Duration, answers func() error) error {
	err := poll(limit, func() error {
		select {
		case <-c.exited:
			return errEnded
		default:
			return answers()
		}
	})
	if err != nil {
		return c.failed(err)
	}
	return nil
}

// poll calls ok every few milliseconds until it returns nil. After limit, or after errEnded, it
// returns ok's last error.
func poll(limit time.Duration, ok func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		err := ok()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}
