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

// child is a process that this benchmark started. It is ended by its pid, and by
// the kernel should the benchmark itself be killed.
type child struct {
	name   string
	cmd    *exec.Cmd
	log    string        // the file that holds its output
	exited chan struct{} // closed once it is gone and waited for
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
	// A group of its own: a Ctrl-C in the terminal is ours to handle.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the child, for which kill and terminate wait
		_ = c.cmd.Wait() // how it ended is in its log
		close(c.exited)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the child and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only where it is gone already
	<-c.exited
}

// terminate asks the child to end and waits for it; after limit it is killed.
func (c *child) terminate(limit time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only where it is gone already
	select {
	case <-c.exited:
		return nil
	case <-time.After(limit):
		c.kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", c.name, limit)
	}
}

// failed returns an error that carries the end of the child's output.
func (c *child) failed(err error) error {
	out, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := strings.Join(lines[max(0, len(lines)-10):], "\n\t")
	return fmt.Errorf("%s: %w; its last words:\n\t%s", c.name, err, last)
}

// errEnded ends a poll at once: the process that it waits for has ended.
var errEnded = errors.New("it ended")

// ready polls until answers returns nil, and fails early where the child ends.
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

// poll calls ok every few milliseconds until it returns nil; after limit, or
// after errEnded, it returns what ok returned last.
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
