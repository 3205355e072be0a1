package main

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/holder"
)

// whichHelp explains which lock a command is about.
const whichHelp = `NAME is a lock of the process that calls redlock, such as a script that ran redlock lock,
or of the process of --pid. Under redlock run it is the lock of redlock run, if NAME is
the same or left out. After that redlock run has ended, NAME is the process's lock again.
Locks that were taken together are named together, with commas between them, in the
same order; a comma inside a name is written %2C.`

// heldExits are the exit codes of commands about a held lock.
const heldExits = `Exit codes: 0 done; 1 it is not held; 64 usage; 69 the daemon is not available, or too
few nodes are; 70 internal; 75 it was lost; 77 denied, such as for another user's
process.`

func newHeldCommand(use string) (*cobra.Command, *holder.Lookup) {
	cmd, h := &cobra.Command{Use: use + " [NAME]", Args: flags.AtMost(1), ValidArgsFunction: completeSeveral}, &holder.Lookup{}
	h.Holder.Define(cmd)
	return cmd, h
}
