package systemd

import (
	"cmp"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// notifier is the socket on which the manager reads this process's messages. It connects for the
// first message, and reconnects if the socket is gone. A nil notifier means that there is no
// manager, and sends nothing.
type notifier struct {
	address net.UnixAddr

	mu   sync.Mutex // guards conn; not held during I/O; no other mutex is taken inside it
	conn *net.UnixConn
}

func notifierFromEnvironment() *notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	return &notifier{address: net.UnixAddr{Name: path, Net: "unixgram"}}
}

// send sends one message, with duplicates of descriptors. It blocks while the manager's queue is
// full.
func (n *notifier) send(message string, fds ...int) error {
	if n == nil {
		return nil
	}
	conn, err := n.connected()
	if err != nil {
		return err
	}
	if err = write(conn, message, fds); err == nil {
		return nil
	}
	// Nothing was sent. The manager may listen on another socket with that name by now.
	n.mu.Lock()
	if n.conn == conn {
		n.conn = nil
	}
	n.mu.Unlock()
	conn.Close()
	if conn, err = n.connected(); err != nil {
		return err
	}
	return write(conn, message, fds)
}

func (n *notifier) connected() (*net.UnixConn, error) {
	n.mu.Lock()
	conn := n.conn
	n.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	made, err := net.DialUnix(n.address.Net, nil, &n.address)
	if err != nil {
		return nil, err
	}
	return n.keep(made), nil
}

// keep returns the connection to use: made, unless another goroutine was faster.
func (n *notifier) keep(made *net.UnixConn) *net.UnixConn {
	n.mu.Lock()
	if n.conn == nil {
		n.conn = made
	}
	conn := n.conn
	n.mu.Unlock()
	if conn != made {
		made.Close()
	}
	return conn
}

// write waits until the manager's queue accepts the message.
func write(conn *net.UnixConn, message string, fds []int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var refused error
	err = raw.Write(func(fd uintptr) (done bool) { // WriteMsgUnix does not support connected datagram sockets
		for {
			refused = unix.Sendmsg(int(fd), []byte(message), rights, nil, 0)
			if refused != unix.EINTR {
				return refused != unix.EAGAIN
			}
		}
	})
	return cmp.Or(err, os.NewSyscallError("sendmsg", refused))
}
