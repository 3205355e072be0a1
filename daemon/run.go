package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// RunOptions are the options of Run that are not in the config.
type RunOptions struct {
	// Dev embeds the nodes in the process.
	Dev bool
	// Reload receives new configs. If more than log, access, limits and doctor has changed, the
	// process replaces itself.
	Reload <-chan *config.Config
	// Replace replaces the process by systemd.Replace, and returns only if that fails. Nil: it cannot.
	Replace func([]systemd.Passed) error
	// Ready is called when clients can connect. It may be nil.
	Ready func()
	// Manager is the service manager that started the process. It may have created the socket. The
	// daemon tells it when it is ready, has reloaded, and stops. Nil: there is none.
	Manager *systemd.Manager
}

// Run serves until ctx ends, and then shuts down. It accepts no new connections, answers running
// requests, refuses waiting ones with SHUTDOWN, and ends every connection with BYE. It does not
// release the leases of living clients: they stay on the nodes until their deadlines. (If the
// service manager stores connections, see package daemon.) An error means that it could not start,
// or could accept no more connections.
func Run(ctx context.Context, cfg *config.Config, log hclog.Logger, o RunOptions) error {
	nodes, closeNodes, err := nodesOf(cfg, o.Dev)
	if err != nil {
		return err
	}
	defer closeNodes()
	claim, err := claimSocket(&cfg.Socket, o.Manager)
	if err != nil {
		return err
	}
	d, err := newDaemon(cfg, log, nodes, o.Dev)
	if err != nil {
		claim.release()
		return err
	}
	ends := cleanups{d: d, claim: claim}
	defer ends.run()
	ends.add(claim.release)
	ends.add(d.Close)
	stopWatching, err := d.Processes.Watch()
	if err != nil {
		return err
	}
	ends.add(stopWatching)
	ends.add(d.serveMetrics())
	d.waitForNodes(ctx)
	stored := state.TakeInherited(o.Manager)
	listener, err := d.openSocket(claim, o.Manager)
	if err != nil {
		return err
	}
	ends.add(func() { listener.release(!d.frozen.Load()) })
	d.listener = listener
	if err := d.serve(ctx, stored, o); err != nil || !d.replacing || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("the restart in place failed: the next start continues with the leases: %w", o.Replace(d.passed))
}

// cleanups are the functions that end the daemon. They are called in reverse order.
type cleanups struct {
	d     *daemon
	claim *claim
	funcs []func()
}

func (e *cleanups) add(end func()) { e.funcs = append(e.funcs, end) }

// run calls the functions. After a freeze the process exits, and nothing may delay that. So run
// calls them in a goroutine for which nothing waits, and which changes nothing that the next daemon
// finds. Before that, it frees what the next daemon needs: the state file, and the lock of the
// socket.
func (e *cleanups) run() {
	if e.d.frozen.Load() {
		e.d.Journal.Close()
		e.claim.lock.Close()
		go e.runAll()
		return
	}
	e.runAll()
}

func (e *cleanups) runAll() {
	for _, end := range slices.Backward(e.funcs) {
		end()
	}
}

// nodesOf returns the nodes of the config, or embedded ones.
func nodesOf(cfg *config.Config, dev bool) (nodes []redlock.Node, closeNodes func(), err error) {
	if dev {
		e, nodes, err := devnodes.Start(&cfg.Quorum)
		if err != nil {
			return nil, nil, err
		}
		return nodes, e.Close, nil
	}
	for i := range cfg.Quorum.Nodes {
		nodes = append(nodes, redlock.RedisNode(nodeOptions(&cfg.Quorum.Nodes[i])))
	}
	return nodes, func() {}, nil
}

// nodeOptions returns the options of a node. Passwords and certificates are read at every
// connection.
func nodeOptions(node *config.Node) redlock.NodeOptions {
	options := redlock.NodeOptions{Name: node.Name, Address: node.Address, Database: node.Database, Username: node.Username, Durable: node.Durable, Joining: node.Joining, Leaving: node.Leaving}
	if node.PasswordFile != "" {
		options.Password = func() (string, error) {
			password, err := node.Password()
			if err != nil {
				err = fmt.Errorf("its password_file cannot be used: %w", err)
			}
			return password.Reveal(), err
		}
	}
	if node.TLS != nil {
		options.TLS = func() (*tls.Config, error) {
			cfg, err := node.TLSClientConfig()
			if err != nil {
				err = fmt.Errorf("a file of its tls block cannot be used: %w", err)
			}
			return cfg, err
		}
	}
	return options
}

// waitForNodes waits up to a second for the connections to the nodes, so that the first request
// does not fail because it was too early. If nodes are missing, the daemon starts all the same.
func (d *daemon) waitForNodes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	d.Nodes.Settle(ctx)
	status := d.Nodes.Status()
	for _, warning := range status.Warning {
		d.Log.Warn("fleet could be safer", "warning", warning)
	}
	if status.Spare() < 0 {
		d.quorate.noteLossLogged(d.Clock())
		values := []any{"reason", session.NoQuorumReason(status), "ready", status.Ready, "quorum", status.Quorum, "nodes", len(status.Nodes)}
		if status.Left > 0 {
			values = append(values, "left", session.Seconds(status.Left))
		}
		d.Log.Warn("no quorum yet", values...)
	}
}

func (d *daemon) serve(ctx context.Context, stored state.Inherited, o RunOptions) error {
	srv, listener := d.NewServer(), d.listener
	stopStoring := d.restore(srv, listener.claim.path, stored, o)
	defer stopStoring()
	accepting, stop := context.WithCancel(context.WithoutCancel(ctx)) // clients may connect during a drain
	defer stop()
	served := make(chan error, 1)
	var serving, attending sync.WaitGroup // stop ends all of them
	serving.Go(func() { served <- listener.serve(accepting, srv) })
	d.Log.Info("serving", "socket", listener.claim.path, "nodes", len(d.Cfg.Quorum.Nodes), "version", Version())
	if o.Ready != nil {
		o.Ready()
	}
	d.LogManagerError(o.Manager.Ready())
	defer attending.Wait()
	attending.Go(func() { d.reportStatus(accepting, o.Manager) })
	attending.Go(func() { d.Journal.Watch(accepting) })
	attending.Go(func() { listener.watch(accepting, d) })
	attending.Go(func() { d.LeaseLog.Run(accepting) })
	attending.Go(func() { d.certificates.watch(accepting) })
	attending.Go(func() { d.watchNodes(accepting) })
	attending.Go(func() { d.watchChange(accepting) })
	err := d.waitUntilStopped(ctx, served, o)
	if err == nil && !d.replacing && d.mustDrain(o.Manager) {
		d.Drain(srv)
	}
	stop()
	serving.Wait() // a connection that is accepted later would be closed without an answer
	if d.replacing {
		d.passed = append(d.passed, d.FreezeToReplace(srv)...)
		d.frozen.Store(true)
		return nil
	}
	d.LogManagerError(o.Manager.Stopping())
	if d.Store != nil {
		d.Freeze(srv)
		d.frozen.Store(true)
	} else {
		d.Shutdown(srv)
	}
	return err
}

// mustDrain reports whether to wait for held locks before the daemon stops. If the service manager
// stores the connections, a stop is usually a restart, which ends no lock and must not refuse any.
// Then only the shutdown of the host is a reason.
func (d *daemon) mustDrain(m *systemd.Manager) bool {
	switch {
	case d.Cfg.Drain == 0:
		return false
	case d.Store == nil:
		return true
	}
	stops, err := m.SystemStops()
	if err != nil {
		d.Log.Warn("whether this host shuts down is unknown: not draining", "error", err)
	}
	return stops
}

// restore restores the state that the earlier daemon left. With embedded nodes nothing outlasts the
// process.
func (d *daemon) restore(srv *server.Server, path string, stored state.Inherited, o RunOptions) (stop func()) {
	if o.Dev {
		return func() {}
	}
	d.Restore(srv, o.Manager, stored, path)
	return d.Store.Start()
}

// waitUntilStopped applies new configs until ctx ends, no connection can be accepted, or a config
// needs another process.
func (d *daemon) waitUntilStopped(ctx context.Context, served <-chan error, o RunOptions) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			if ctx.Err() != nil || err == nil {
				return nil
			}
			return fmt.Errorf("accepting connections: %w", err)
		case cfg := <-o.Reload:
			if d.applyNew(ctx, cfg, o) {
				return nil
			}
		}
	}
}

// reload applies the parts of a config that this process can change: nothing else has changed
// (Config.Changes). LOCKs that wait were allowed, and continue.
func (d *daemon) reload(cfg *config.Config) {
	d.Log.SetLevel(cfg.Log.Level)
	logging.SetFormat(d.Log, cfg.Log.Format)
	d.Reload(cfg)
	d.certificates.requestCheck()
	d.Log.Info("config reloaded: log, access, limits and doctor are in force; passwords and certificates are read at the next connection to a node",
		"access", cfg.Access.String())
}
