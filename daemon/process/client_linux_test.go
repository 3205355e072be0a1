package process

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/redlock"
)

// A client has ended when its process has ended and no child has the connection. In doubt it has not.
func TestClientHasEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// The process prints the pid of a child that has the connection. The child ends with its input.
	const code = `import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
child = os.fork()
if child == 0:
    sys.stdin.read()
else:
    print(child, flush=True)
    if sys.argv[2] == "close":
        s.close()
    os.kill(os.getpid(), 19)
`
	connect := func(then string) (client Client, connection net.Conn, process *exec.Cmd, endChild io.Closer) {
		process = exec.Command("python3", "-c", code, path, then)
		input, err := process.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Skipf("python3 is needed: apt-get install python3: %v", err)
		}
		connection, err = listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := connection.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		client = ClientOf(raw, process.Process.Pid, redlock.BootTime())
		if client.Socket == 0 {
			t.Fatalf("the client is not known: %+v", client)
		}
		if got := ClientOf(raw, process.Process.Pid, client.Started-1); got != (Client{}) {
			t.Errorf("a process that was started after the connection was made is its client: %+v", got)
		}
		if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return client, connection, process, input
	}
	check := func(when string, c Client, want bool) {
		t.Helper()
		if got := c.HasEnded(); got != want {
			t.Errorf("%s: it has ended: %v, want %v", when, got, want)
		}
	}
	end := func(process *exec.Cmd) {
		process.Process.Kill()
		process.Wait()
	}

	client, connection, process, child := connect("keep")
	check("the client lives", client, false)
	connection.Close()
	check("the daemon has ended", client, false)
	end(process)
	check("the child has the connection", client, false)
	child.Close()
	awaitClosed(t, client.Socket)
	check("the child has ended", client, true)
	for what, other := range map[string]Client{
		"the client is not known":            {},
		"its pid is of another namespace":    {client.PID, client.Started, client.Socket, client.PIDNamespace + 1, client.NetNamespace},
		"its socket is of another namespace": {client.PID, client.Started, client.Socket, client.PIDNamespace, client.NetNamespace + 1},
	} {
		check(what, other, false)
	}

	client, connection, process, child = connect("close")
	connection.Close()
	child.Close()
	awaitClosed(t, client.Socket)
	check("it has closed its connection, and may connect again", client, false)
	later := client
	later.Started--
	check("another process has its pid", later, true)
	end(process)
	check("it has ended after that", client, true)
}

// awaitClosed waits until no process has a socket.
func awaitClosed(t *testing.T, socket uint64) {
	t.Helper()
	for mayBeOpen(socket) { // the time limit of the test bounds this
		unix.Poll(nil, 1)
	}
}
