//go:build !linux

package statefile

import (
	"errors"
	"os"
)

// mapFile works on Linux only. On other systems a restart of the daemon loses its leases.
func mapFile(string, int) ([]byte, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func mapToRead(*os.File) ([]byte, error) { return nil, errors.ErrUnsupported }

func release([]byte) {}

func unmap([]byte) error { return nil }
