package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

const (
	// nodeTimeout is the daemon's node_timeout: with a hung node, p99 must stay below it.
	nodeTimeout = 50 * time.Millisecond
	// pairTTL is the lease time of every contender's lock+unlock pairs.
	pairTTL = 10 * time.Second
	// heldTTL is the lease time of leases that are held and extended.
	heldTTL = 30 * time.Second

	maxLeases = 1_000_000 // also the daemon's limit
	maxConns  = 18_000    // what the usual limit of 20,000 open files allows
)

// daemon is a redlockd process and its socket.
type daemon struct {
	*child
	socket string
	nodes  int // in its config
}

// buildDaemon returns the path of a redlockd binary: the given one, or one built into dir from the
// checkout of this module.
func buildDaemon(ctx context.Context, dir, given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	root, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/redlockd/redlockd"))
	if err != nil {
		return "", fmt.Errorf("find the redlockd module (run this in packaging/bench): %w", err)
	}
	binary := filepath.Join(dir, "redlockd")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/redlockd")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the packages are built, so it may be in the cache
	if _, err := output(build); err != nil {
		return "", fmt.Errorf("build redlockd: %w", err)
	}
	return binary, nil
}

// output runs cmd and returns its stdout. The error has its stderr.
func output(cmd *exec.Cmd) (string, error) {
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// startDaemon starts a daemon for the nodes. It returns when the socket answers and all nodes are
// ready. lines are added to the quorum block of its config.
func startDaemon(ctx context.Context, dir, binary, name string, nodes []*node, lines ...string) (*daemon, error) {
	socket := filepath.Join(dir, name+".sock")
	config := filepath.Join(dir, name+".hcl")
	if err := os.WriteFile(config, []byte(daemonConfig(socket, nodes, lines)), 0o600); err != nil {
		return nil, err
	}
	// The unit sets the same priority. If that is not allowed, nice reports it and continues.
	c, err := startChild(dir, name, "nice", "-n", "-10", binary, "-config", config)
	if err != nil {
		return nil, err
	}
	d := &daemon{child: c, socket: socket, nodes: len(nodes)}
	if err := d.ready(10*time.Second, func() error { return d.allReady(ctx) }); err != nil {
		d.kill()
		return nil, err
	}
	return d, nil
}

// stop ends the daemon as an init system does.
func (d *daemon) stop() error { return d.terminate(10 * time.Second) }

func (d *daemon) dial(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return client.Dial(ctx, d.socket)
}

// allReady returns nil if the daemon reports every node as ready.
func (d *daemon) allReady(ctx context.Context) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return nodesReady(ctx, c, d.nodes)
}

// daemonConfig returns the config for these nodes: high limits, and defaults otherwise.
func daemonConfig(socket string, nodes []*node, lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum {\n  max_ttl      = %q\n  node_timeout = %q\n", heldTTL, nodeTimeout)
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, n := range nodes {
		fmt.Fprintf(&b, "  node %q { address = %q }\n", n.Name(), n.address())
	}
	fmt.Fprintf(&b, "}\nlease {\n  ttl = %q\n}\nsocket {\n  path = %q\n}\n", pairTTL, socket)
	fmt.Fprintf(&b, "limits {\n  connections          = %d\n  connections_per_user = %[1]d\n", maxConns+100)
	fmt.Fprintf(&b, "  leases_per_user      = %d\n  waiters_per_user     = %[1]d\n}\n", maxLeases)
	return b.String()
}
