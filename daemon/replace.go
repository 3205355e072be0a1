package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/systemd"
)

// If a new config changes what is fixed while a process runs, the process replaces itself by a new
// one of the same program. It stops as it does when the service manager stores the connections, but
// passes its socket and all connections itself. So it needs no service manager.

// Names of descriptors that only a process which replaces itself passes.
const (
	ownSocketName = "socket" // the socket that the daemon created, not the service manager
	lockFileName  = "lock"   // the lock file of the socket, locked
	configName    = "config"
)

// PassedConfig returns the text of the config that the earlier process has checked, or nil if no
// process has replaced itself by this one.
func PassedConfig(m *systemd.Manager) ([]byte, error) {
	file := m.File(configName)
	if file == nil {
		return nil, nil
	}
	defer file.Close()
	return config.ReadAll(file)
}

// applyNew makes the daemon use a new config, at once or by a restart in place. If restart is
// true, the caller must stop serving, and then call replace.
func (d *daemon) applyNew(ctx context.Context, next *config.Config, o RunOptions) (restart bool) {
	changed, err := d.Cfg.Changes(next, d.Nodes.ReplacedList() != "" && d.Held() == 0)
	if err == nil {
		err = d.checkLists(ctx, next)
	}
	if err == nil && len(changed) > 0 {
		if err = d.prepareReplace(next, o); err != nil {
			err = fmt.Errorf("a restart is needed to change %s: %w", strings.Join(changed, ", "), err)
		}
	}
	switch {
	case err != nil:
		facts := []any{"error", err}
		if d.isChanging {
			hosts, _ := d.Nodes.ChangeHosts(ctx) // without them, the next step is said in general
			facts = append(facts, "next", d.Nodes.NextStep(hosts))
		}
		d.Log.Error("config not reloaded: the old one stays in effect", facts...)
		d.NoteUnreloaded(err)
	case len(changed) > 0:
		if d.Cfg.Quorum.SharesList(&next.Quorum) {
			d.Log.Info("restarting in place: leases, waiters and connections continue", "changes", changed)
		} else { // the next process cannot use the state file
			d.Log.Info("restarting in place with other nodes: no lock is held here, and connections end", "changes", changed)
		}
		if systemd.ProgramReplaced() {
			d.Log.Warn("another redlockd is installed, but this version continues", "fix", "systemctl restart redlockd, or start it again by hand")
		}
		d.replacing = true
		return true
	default:
		d.reload(next)
	}
	d.LogManagerError(o.Manager.Ready())
	return false
}

// checkLists returns an error if a process with the lists of nodes in next would get no vote: it would
// lose the leases.
func (d *daemon) checkLists(ctx context.Context, next *config.Config) error {
	before, after, isOther := d.Cfg.Quorum.ListsChange(&next.Quorum)
	if !isOther {
		return nil
	}
	return d.Nodes.CheckLists(ctx, before, after)
}

// prepareReplace returns an error if a new process would not start with a config that is valid, or
// would lose leases or waiters.
func (d *daemon) prepareReplace(next *config.Config, o RunOptions) error {
	if o.Replace == nil {
		return errors.New("this process cannot replace itself")
	}
	if err := systemd.MayReplace(); err != nil {
		return err
	}
	if health := d.Journal.Health(); !d.Journal.IsOpen() || health != state.Healthy {
		return fmt.Errorf("now it would lose leases and waiters: %s", health.Text())
	}
	if d.listener.isOurs {
		if next.Socket.Path != d.listener.claim.path {
			return errors.New("socket.path cannot change while locks are held, because the state file is beside the socket: stop redlockd, and start it with the new path")
		}
		if err := next.Socket.CheckGroup(); err != nil {
			return err
		}
	}
	for _, warning := range next.Warnings {
		if strings.Contains(warning, config.NeverStarts) {
			return errors.New(warning)
		}
	}
	if err := checkMetrics(d.Cfg.Metrics, next.Metrics); err != nil {
		return err
	}
	return d.passRest(next)
}

// checkMetrics returns an error if the next process could not listen at its metrics.address.
func checkMetrics(now, next *config.Metrics) error {
	if next == nil || now != nil && now.Address == next.Address {
		return nil
	}
	listener, err := net.Listen("tcp", next.Address)
	if err == nil {
		return listener.Close()
	}
	if now != nil && errors.Is(err, syscall.EADDRINUSE) && portOf(now.Address) == portOf(next.Address) {
		return nil // this process listens there, and soon ends that
	}
	return fmt.Errorf("metrics.address: %w", err)
}

func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return port
}

// passRest sets passed to what the next process needs beside the connections.
func (d *daemon) passRest(next *config.Config) error {
	d.passed = nil
	name := systemd.ListenerName
	if d.listener.isOurs {
		name = ownSocketName
	}
	text, err := systemd.MemoryFile(configName, next.Source)
	if err != nil {
		return err
	}
	mark, err := state.OpenMark()
	if err != nil {
		return err
	}
	listener, lock, err := d.listener.passed() // last: from then on a removed socket is not bound again
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		*os.File
	}{{name, listener}, {lockFileName, lock}, {configName, text}, {state.MarkName, mark}} {
		raw, err := file.SyscallConn()
		if err != nil {
			return err
		}
		d.passed = append(d.passed, systemd.Passed{Name: file.name, FD: raw})
	}
	return nil
}
