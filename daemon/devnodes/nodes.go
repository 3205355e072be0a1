package devnodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/redlock"
)

// Embedded are nodes in this process.
type Embedded struct{ servers []*miniredis.Miniredis }

// Start starts an embedded node for each node of the config. Close ends them.
func Start(cfg *config.Quorum) (*Embedded, []redlock.Node, error) {
	e := &Embedded{}
	var nodes []redlock.Node
	for _, node := range cfg.Nodes {
		server, err := startMiniredis()
		if err != nil {
			e.Close()
			return nil, nil, fmt.Errorf("embedded node %s: %w", node.Name, err)
		}
		e.servers = append(e.servers, server)
		nodes = append(nodes, redlock.RedisNode(redlock.NodeOptions{
			Name:     node.Name,
			Address:  node.Address,
			Embedded: true,
			Dial:     func(context.Context) (net.Conn, error) { return dialMiniredis(server) },
		}))
	}
	return e, nodes, nil
}

// startMiniredis starts a node without a port. It sets ClockTTL, without which keys never expire.
func startMiniredis() (*miniredis.Miniredis, error) {
	server := miniredis.NewMiniRedis()
	first, err := server.Dial() // starts it
	if err != nil {
		return nil, err
	}
	first.Close()
	server.ClockTTL(true)
	return server, nil
}

// dialMiniredis connects through a socket pair. The in-memory pipe of miniredis has no buffer, so it
// would block forever on a group of commands.
func dialMiniredis(server *miniredis.Miniredis) (net.Conn, error) {
	ours, theirs, err := SocketPair()
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	server.Server().ServeConn(theirs)
	return ours, nil
}

// SocketPair makes two connected sockets.
func SocketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	a, err = connOf(fds[0])
	b, err2 := connOf(fds[1])
	return a, b, errors.Join(err, err2)
}

func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket pair")
	defer file.Close()
	return net.FileConn(file)
}

// Close stops the nodes.
func (e *Embedded) Close() {
	for _, server := range e.servers {
		server.Close()
	}
}
