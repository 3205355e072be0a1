//go:build !linux

package main

import (
	"os"
	"syscall"
)

// deadlyHere: there are no further ones.
var deadlyHere []os.Signal

// diesWithParent: only Linux can kill the command when this process is killed.
func diesWithParent() *syscall.SysProcAttr { return nil }
