package daemon

import (
	"fmt"
	"net"
	"os"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/systemd"
)

// claim is the exclusive right of a daemon to serve at a socket path. The daemon takes it before it
// contacts any node, so that a daemon that cannot serve leaves nothing on the nodes.
type claim struct {
	path      string
	lock      *os.File
	inherited *net.UnixListener // from the service manager; nil: the daemon creates its own
	earlier   *net.UnixListener // the daemon's own, from the process that has replaced itself by this one; or nil
}

func claimSocket(cfg *config.Socket, m *systemd.Manager) (*claim, error) {
	handed, err := m.Listener(systemd.ListenerName)
	if err != nil {
		return nil, err
	}
	earlier, err := m.Listener(ownSocketName)
	if err != nil {
		return nil, err
	}
	c := &claim{path: cfg.Path, inherited: handed, earlier: earlier}
	if handed != nil {
		c.path = handed.Addr().String()
	} else if err := cfg.CheckGroup(); err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.path, err)
	}
	if c.lock = m.File(lockFileName); c.lock != nil {
		return c, nil
	}
	if c.lock, err = lockSocket(c.path); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// release ends the claim. It has no effect if the socket was released already.
func (c *claim) release() {
	for _, listener := range []*net.UnixListener{c.inherited, c.earlier} {
		if listener != nil {
			listener.Close()
		}
	}
	c.lock.Close() // nil, and so without effect, if lockSocket failed
}

// openSocket returns the socket that the service manager listens on for this daemon, or creates one.
// It closes other descriptors that the manager handed over.
func (d *daemon) openSocket(c *claim, m *systemd.Manager) (*socket, error) {
	if rest := m.CloseRest(); len(rest) > 0 {
		d.Log.Warn("the service manager handed over unknown descriptors: they are closed", "names", rest,
			"wanted", systemd.ListenerName+" (FileDescriptorName= in redlockd.socket)")
	}
	switch {
	case c.earlier != nil && setPermissions(c.path, &d.Cfg.Socket) == nil:
		return newSocket(c, c.earlier, true), nil
	case c.inherited == nil:
		return c.listen(&d.Cfg.Socket)
	}
	for _, difference := range d.Cfg.Socket.Differences(c.path) {
		d.Log.Warn("the socket of the service manager differs from the config: redlockd.socket decides", "config", difference)
	}
	return newSocket(c, c.inherited, false), nil
}
