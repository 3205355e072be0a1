//go:build !linux

package job

import "github.com/redlockd/redlockd/cmd/redlock/internal/exit"

// endWithParent fails: only Linux can report the end of the parent.
func endWithParent() error {
	return exit.Usagef("--with-parent works on Linux only")
}
