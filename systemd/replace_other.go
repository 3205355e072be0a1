//go:build !linux

package systemd

import (
	"errors"
	"os"
)

// Replace is for Linux only.
func Replace([]Passed) error { return MayReplace() }

// MayReplace is for Linux only.
func MayReplace() error { return errors.New("on this system a process does not replace itself") }

// ProgramReplaced is for Linux only.
func ProgramReplaced() bool { return false }

// MemoryFile is for Linux only.
func MemoryFile(string, []byte) (*os.File, error) { return nil, MayReplace() }

func passedByReplace() ([]*os.File, error) { return nil, nil }
