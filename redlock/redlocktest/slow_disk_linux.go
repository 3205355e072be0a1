package redlocktest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed testdata/slow-disk.c
var slowDiskSource []byte

// SlowDisk makes SetSyncTime possible. It needs a C compiler (cc).
func SlowDisk() Option {
	return func(s *Server) {
		s.prepare = append(s.prepare, func(s *Server, cmd *exec.Cmd) error {
			if err := s.SetSyncTime(0); err != nil {
				return err
			}
			return s.preload(cmd, "slow", slowDiskSource, "SLOW_FILE="+s.slowFile())
		})
	}
}

// SetSyncTime sets how much longer the server's disk takes to sync a file, until the next call or start
// of the server, which was started with SlowDisk.
func (s *Server) SetSyncTime(more time.Duration) error {
	data := binary.NativeEndian.AppendUint64(nil, uint64(more.Microseconds()))
	file, err := os.OpenFile(s.slowFile(), os.O_WRONLY|os.O_CREATE, 0o600) // not truncated: the shim may read it now
	if err == nil {
		defer file.Close()
		_, err = file.WriteAt(data, 0)
	}
	if err != nil {
		return fmt.Errorf("redis-server %s: making its disk slow: %w", s.name, err)
	}
	return nil
}

func (s *Server) slowFile() string { return filepath.Join(s.dir, "sync-time") }
