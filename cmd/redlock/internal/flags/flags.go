package flags

import (
	"github.com/spf13/cobra"
)

func Print(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "print", false, "print the fencing token, the lease and others as assignments for a shell")
}

func JSON(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "for programs: print JSON")
}
