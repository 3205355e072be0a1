package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// Lookup finds the lease that a command is about.
type Lookup struct {
	Holder Flag
	Name   string // of the lock or locks, as on the command line
}

// Ask finds the lease and calls do with it.
func (h *Lookup) Ask(cmd *cobra.Command, args []string, do func(context.Context, *client.Lease) error) error {
	find, err := h.finder(args)
	if err != nil {
		return err
	}
	return socket.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		lease, err := find(ctx, c)
		if err != nil {
			err = lockname.AsTyped(err, cmd.Name(), h.Name) // in the client's error the lookup is CHECK
			if name, _, _ := strings.Cut(h.Name, lockname.Separator); errors.Is(err, client.ErrNotHeld) {
				err = fmt.Errorf("%w; redlock who %s shows the holder, and --pid names another process", err, name)
			}
			return err
		}
		return do(ctx, lease)
	})
}

// finder asks the daemon for a lease.
type finder func(context.Context, *client.Client) (*client.Lease, error)

// finder returns a way to find the lease: by the environment of redlock run, or by process.
func (h *Lookup) finder(args []string) (finder, error) {
	above, id := os.Getenv("REDLOCK_NAME"), os.Getenv("REDLOCK_LEASE")
	switch {
	case len(args) > 0:
		h.Name = args[0] // an empty NAME, such as an empty variable, is rejected below
	case above == "":
		return nil, exit.Usagef("the NAME of a lock is missing")
	default:
		h.Name = above
	}
	names, err := lockname.Split(h.Name)
	if err != nil {
		return nil, err
	}
	ofProcess, err := h.ofProcess(names)
	if id == "" || h.Name != above || h.Holder.isSet() {
		return ofProcess, err
	}
	var ofRun finder = func(ctx context.Context, c *client.Client) (*client.Lease, error) {
		return c.LeaseByID(ctx, id, names...)
	}
	if len(args) == 0 || err != nil {
		return ofRun, nil
	}
	return ofRun.orElse(ofProcess), nil
}

// orElse tries other if the redlock run of the environment has ended: this process has outlived it,
// and may itself hold a lock of the same name.
func (f finder) orElse(other finder) finder {
	return func(ctx context.Context, c *client.Client) (*client.Lease, error) {
		lease, err := f(ctx, c)
		if errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrLost) {
			if own, none := other(ctx, c); none == nil {
				return own, nil
			}
		}
		return lease, err
	}
}

// ofProcess finds the lease of the holder. In a subshell that may be the shell above. bash -c may
// replace itself with the last command of its script, so this process may be the holder.
func (h *Lookup) ofProcess(names []string) (finder, error) {
	pid, err := h.Holder.Process()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, c *client.Client) (*client.Lease, error) {
		lease, err := c.LeaseOf(ctx, pid, names...)
		if h.Holder.isSet() || !errors.Is(err, client.ErrNotHeld) {
			return lease, err
		}
		for _, other := range append(shellsAbove(pid), os.Getpid()) {
			if own, none := c.LeaseOf(ctx, other, names...); none == nil {
				return own, nil
			}
		}
		return lease, err
	}, nil
}
