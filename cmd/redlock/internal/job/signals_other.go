//go:build !linux

package job

import (
	"os"
	"syscall"
)

// fatalHere is empty: other systems have no further fatal signals.
var fatalHere []os.Signal

// diesWithParent does nothing: only Linux can kill the command when this process is killed.
func diesWithParent() *syscall.SysProcAttr { return nil }
