package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

// held finds the lock that a command is about, and that somebody holds already.
type held struct {
	holder holderFlag
	name   string // of the lock, or of several, as the command line has them
}

// whichHelp tells which lock is meant.
const whichHelp = `It is the lock NAME of the process that calls redlock, such as a script that has run
redlock lock (which says when that is another one), or of --pid. Under redlock run it
is the lock of that, where NAME is the same, or left out; once that is over, and NAME is
there, it is the process' own again. Locks that were taken together are named together,
with commas between them, in the order in which they were taken; a comma that belongs
to a name is written %2C.`

// heldExits are the exit codes of commands about a lock that is held.
const heldExits = `Exit codes: 0 done; 1 it is not held; 64 usage; 69 the daemon is not available, or
too few nodes are; 70 internal; 75 it was lost; 77 denied, such as for another user's
process.`

func newHeldCommand(use string) (*cobra.Command, *held) {
	cmd, h := &cobra.Command{Use: use + " [NAME]", Args: atMost(1), ValidArgsFunction: completeSeveral}, &held{}
	h.holder.define(cmd)
	return cmd, h
}

// ask does something with the lease.
func (h *held) ask(cmd *cobra.Command, args []string, do func(context.Context, *client.Lease) error) error {
	find, err := h.which(args)
	if err != nil {
		return err
	}
	return ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		lease, err := find(ctx, c)
		if err != nil {
			return asTyped(err, cmd.Name(), h.name) // to look for it is a CHECK, whatever was typed
		}
		return do(ctx, lease)
	})
}

// finder asks the daemon for a lease.
type finder func(context.Context, *client.Client) (*client.Lease, error)

// which is how the daemon is asked for the lease.
func (h *held) which(args []string) (finder, error) {
	above, id := os.Getenv("REDLOCK_NAME"), os.Getenv("REDLOCK_LEASE")
	switch {
	case len(args) > 0:
		h.name = args[0] // also an empty one, which may be of a variable: it is not left out
	case above == "":
		return nil, usage("the NAME of a lock is wanted")
	default:
		h.name = above
	}
	names, err := splitNames(h.name)
	if err != nil {
		return nil, err
	}
	ofProcess, err := h.ofProcess(names)
	if id == "" || h.name != above || h.holder.given() {
		return ofProcess, err
	}
	var ofRun finder = func(ctx context.Context, c *client.Client) (*client.Lease, error) {
		return c.LeaseByID(ctx, id, names...)
	}
	if len(args) == 0 || err != nil {
		return ofRun, nil
	}
	return ofRun.or(ofProcess), nil
}

// or is for who has outlived the redlock run that its environment is of, and has taken a lock by
// that name itself.
func (f finder) or(other finder) finder {
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

// ofProcess finds the lease of the holder. A shell may become the last command of its script
// (bash -c does): it is this process itself then that holds the lock.
func (h *held) ofProcess(names []string) (finder, error) {
	pid, err := h.holder.process()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, c *client.Client) (*client.Lease, error) {
		lease, err := c.LeaseOf(ctx, pid, names...)
		if !h.holder.given() && errors.Is(err, client.ErrNotHeld) {
			if own, none := c.LeaseOf(ctx, os.Getpid(), names...); none == nil {
				return own, nil
			}
		}
		return lease, err
	}, nil
}
