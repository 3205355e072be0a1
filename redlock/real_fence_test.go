package redlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// store is a resource that locks protect: it has one value.
type store struct {
	fenced  bool
	largest uint64 // largest fencing token that it saw
	value   string
}

// write is UPDATE store SET value = $value, largest = $fence. A fenced store adds WHERE largest
// <= $fence.
func (s *store) write(fence uint64, value string) (done bool) {
	if s.fenced && fence < s.largest {
		return false
	}
	s.largest, s.value = max(s.largest, fence), value
	return true
}

// A process checks that it holds the lock. Before it writes, it is stopped for longer than its
// lease lasts. Meanwhile another holder writes. When the first one continues, no lock can stop
// its write any more. A store that compares fencing tokens refuses this write. A store that does
// not loses the second holder's write.
func TestRealStoppedClientIsFenced(t *testing.T) {
	s := newSite(t, 5)
	other := s.newHost(maxTTL(realTTL))
	fenced, control := &store{fenced: true}, &store{}
	client := s.startClient("x")
	first := client.read("granted")
	client.signal(syscall.SIGSTOP)
	second := other.take(redlock.Request{Name: "x", TTL: realTTL, Keep: true})
	if second.Fence() <= first {
		t.Errorf("fencing token %d after %d", second.Fence(), first)
	}
	want(t, "the second holder's write", fenced.write(second.Fence(), "second") && control.write(second.Fence(), "second"), true)
	client.proceed()
	client.signal(syscall.SIGCONT)
	stale := client.read("write")
	want(t, "the stopped client's fencing token", stale, first)
	want(t, "its write is accepted by the fenced store", fenced.write(stale, "first"), false)
	want(t, "its write is accepted by the other store", control.write(stale, "first"), true)
	want(t, "the fenced store has", fenced.value, "second")
	want(t, "the other store has", control.value, "first") // otherwise this test shows nothing
	want(t, "the second holder's lease", second.Err(), nil)
}

// clientNodes is the environment variable that makes this test binary a client.
const clientNodes = "REDLOCK_TEST_CLIENT_NODES"

func TestMain(m *testing.M) {
	if nodes := os.Getenv(clientNodes); nodes != "" {
		if err := runClient(strings.Fields(nodes), os.Args[1], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runClient acquires a lock, keeps it, checks it and reports the grant. A byte on stdin makes it
// do its work: write.
func runClient(nodes []string, lock string, stdin io.Reader, stdout io.Writer) error {
	o := redlock.Options{Prefix: "redlock:", NodeTimeout: realTimeout, MaxTTL: quarantine}
	for _, node := range nodes {
		name, address, _ := strings.Cut(node, "=")
		o.Nodes = append(o.Nodes, redlock.RedisNode(redlock.NodeOptions{Name: name, Address: address}))
	}
	q, err := redlock.New(o)
	if err != nil {
		return err
	}
	defer q.Close()
	q.Settle(context.Background())
	l, err := q.Acquire(context.Background(), redlock.Request{Name: lock, TTL: quarantine, Wait: patience, Keep: true})
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "granted", l.Fence()) // from here on it believes that
	if _, err := stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "write", l.Fence())
	return err
}

// client is a process that runs runClient.
type client struct {
	testing.TB
	process *os.Process
	stdin   io.Writer
	stdout  *bufio.Reader
	pipe    *os.File // read by stdout
}

func (s *site) startClient(lock string) *client {
	s.Helper()
	binary, err := os.Executable()
	must(s, err)
	var nodes []string
	for _, server := range s.all {
		nodes = append(nodes, server.Name()+"="+server.Addr())
	}
	cmd := exec.Command(binary, lock)
	cmd.Env = append(os.Environ(), clientNodes+"="+strings.Join(nodes, " "))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(s, err)
	stdout, err := cmd.StdoutPipe()
	must(s, err)
	must(s, cmd.Start())
	s.Cleanup(func() {
		cmd.Process.Kill() // it may be stopped, or have ended
		cmd.Wait()
	})
	return &client{TB: s.TB, process: cmd.Process, stdin: stdin, stdout: bufio.NewReader(stdout), pipe: stdout.(*os.File)}
}

// read waits for a line with a word and a fencing token.
func (c *client) read(word string) (fence uint64) {
	c.Helper()
	c.pipe.SetReadDeadline(time.Now().Add(2 * patience)) // the client waits for a lock for at most patience
	line, err := c.stdout.ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, word+" %d\n", &fence); err != nil || scanErr != nil {
		c.Fatalf("the client wrote %q (%v), want %s and a fencing token", line, err, word)
	}
	return fence
}

func (c *client) proceed() {
	c.Helper()
	_, err := c.stdin.Write([]byte{'\n'})
	must(c, err)
}

func (c *client) signal(sig syscall.Signal) {
	c.Helper()
	must(c, c.process.Signal(sig))
}
