//go:build !linux

package statefile

import (
	"errors"
	"os"
)

// mapFile works on Linux only. On other systems a restart of the daemon loses its leases.
func mapFile(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

func release([]byte) {}

func unmap([]byte) {}

func guarded(do func()) error { do(); return nil }
