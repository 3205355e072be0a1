package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs redlock and returns the exit code.
func run(args []string, stdin, stdout, stderr *os.File) int {
	if err := exit.CheckLimits(); err != nil {
		return exit.Report(stderr, "redlock", err)
	}
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	return exit.Report(stderr, cmd.CommandPath(), flags.ExplainUnknownCommand(root, err))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Run commands under distributed locks, and see who holds them",
		Long: `Run commands under distributed locks, and see who holds them.

redlockd, the daemon of this host, takes the locks on a quorum of Redis servers. Its
socket is $REDLOCK_SOCKET or, by default, /run/redlockd/redlockd.sock.`,
		Example: `  redlock run nightly-backup -- /usr/local/bin/backup --all
  redlock who nightly-backup
  redlock status`,
		Version:            buildVersion(),
		SilenceErrors:      true, // exit.Report prints them
		SilenceUsage:       true,
		DisableSuggestions: true, // flags.ExplainUnknownCommand makes better ones
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usagef("a command is missing, such as run, who, list or status")
		},
	}
	root.SetFlagErrorFunc(flags.ExplainError)
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetHelpCommand(newHelpCommand())
	root.CompletionOptions.DisableDefaultCmd = true // our command rejects unknown shells
	root.PersistentFlags().Var(socket.Flag(), "socket", "where redlockd listens (default: $REDLOCK_SOCKET, or /run/redlockd/redlockd.sock)")
	root.SetHelpFunc(shortHelp)
	cobra.EnableCommandSorting = false // help lists the common commands first
	addGroup(root, "Common commands", newRunCommand(), newLockCommand(), newUnlockCommand(), newWaitCommand(), newWhoCommand(), newListCommand(), newStatusCommand())
	addGroup(root, "While a lock is held", newCheckCommand(), newExtendCommand(), newBeatCommand())
	addGroup(root, "Operations", newWatchCommand(), newTopCommand(), newDoctorCommand(), newForceCommand(), newAdmitCommand(), newNodesCommand())
	addGroup(root, "Other commands", newCompletionCommand(), newManCommand(), newVersionCommand(), newExecForParentCommand())
	return root
}

// addGroup adds commands under a title of redlock --help.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
