//go:build !linux

package job

import (
	"os"
	"syscall"
)

// fatalHere is empty: other systems have no more fatal signals.
var fatalHere []os.Signal

// diesWithParent does nothing: only Linux can kill the command when this process ends.
func diesWithParent() *syscall.SysProcAttr { return nil }
