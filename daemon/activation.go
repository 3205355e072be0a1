package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/redlockd/redlockd/systemd"
)

// openSocket is the socket that the service manager listens on for this daemon, or
// else one of its own. What the manager handed over besides is of no use.
func (d *daemon) openSocket(m *systemd.Manager) (*socket, error) {
	handed, err := m.Listener(systemd.ListenerName)
	if err != nil {
		return nil, err
	}
	if rest := m.CloseRest(); len(rest) > 0 {
		d.log.Warn("the service manager handed over descriptors that are not understood: they are closed", "names", rest,
			"wanted", systemd.ListenerName+" (FileDescriptorName= in redlockd.socket)")
	}
	if handed == nil {
		return listen(&d.cfg.Socket)
	}
	path := handed.Addr().String()
	for _, difference := range d.cfg.Socket.differences(path) {
		d.log.Warn("the service manager made the socket, and made it differently: redlockd.socket is what counts", "config", difference)
	}
	lock, err := lockSocket(path)
	if err != nil {
		handed.Close()
		return nil, err
	}
	return &socket{Listener: handed, path: path, lock: lock}, nil
}

// differences are what the config wants, and a socket that somebody else made has
// not.
func (cfg *SocketConfig) differences(path string) (found []string) {
	if path != cfg.Path {
		return []string{fmt.Sprintf("socket.path is %s, found %s", cfg.Path, path)}
	}
	info, err := os.Stat(path)
	if err != nil {
		return []string{fmt.Sprintf("clients cannot find it: %v", err)}
	}
	if got := info.Mode().Perm(); got != cfg.Mode.Perm() {
		found = append(found, fmt.Sprintf("socket.mode is %#o, found %#o", cfg.Mode.Perm(), got))
	}
	if difference := cfg.groupDifference(info); difference != "" {
		found = append(found, difference)
	}
	return found
}

func (cfg *SocketConfig) groupDifference(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if cfg.Group == "" || !ok {
		return ""
	}
	switch gid, err := groupID(cfg.Group); {
	case err != nil:
		return err.Error()
	case gid != int(stat.Gid):
		return fmt.Sprintf("socket.group is %s (%d), found %d", cfg.Group, gid, stat.Gid)
	}
	return ""
}
