package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run does what args ask for, and returns the exit code.
func run(args []string, stdin, stdout, stderr *os.File) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	return exit.Report(stderr, cmd.CommandPath(), err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Run commands under distributed locks, and see who holds them",
		Long: `Run commands under distributed locks, and see who holds them.

The locks are taken by redlockd, the daemon of this host, on a quorum of Redis
masters. It is reached through the socket $REDLOCK_SOCKET, or else
/run/redlockd/redlockd.sock.`,
		Example: `  redlock run nightly-backup -- /usr/local/bin/backup --all
  redlock who nightly-backup
  redlock status`,
		Version:       buildVersion(),
		SilenceErrors: true, // report says them, once
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usagef("a command is wanted, such as run, who, list or status")
		},
	}
	root.SetFlagErrorFunc(flags.ExplainError)
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetHelpCommand(newHelpCommand())
	root.CompletionOptions.DisableDefaultCmd = true // ours refuses shells that it does not know
	root.AddCommand(newRunCommand(), newWhoCommand(), newListCommand(), newStatusCommand(),
		newWatchCommand(), newTopCommand(), newForceCommand(), newAdmitCommand(),
		newDoctorCommand(), newBenchCommand(), newCompletionCommand(), newManCommand(), newVersionCommand())
	root.AddCommand(newLockCommand(), newUnlockCommand(), newCheckCommand(), newExtendCommand(), newBeatCommand())
	return root
}
