package redlocktest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

//go:embed testdata/power-loss.c
var powerSource []byte

// Unplugged makes LosePower possible. It needs a C compiler (cc).
func Unplugged() Option {
	return func(s *Server) {
		s.prepare = append(s.prepare, func(s *Server, cmd *exec.Cmd) error {
			if err := os.MkdirAll(s.syncedDir(), 0o700); err != nil {
				return err
			}
			return s.preload(cmd, "power", powerSource, "SYNCED_DIR="+s.syncedDir())
		})
	}
}

func (s *Server) syncedDir() string { return filepath.Join(s.dir, "synced") }

// LosePower kills the server, and takes from its append-only files all bytes that it had not synced.
// A kill alone leaves these in the page cache of the host. It returns how many bytes are lost. The
// server must have been started with Unplugged.
func (s *Server) LosePower() (lost int64, err error) {
	if _, err := os.Stat(s.syncedDir()); err != nil {
		return 0, fmt.Errorf("redis-server %s was not started with Unplugged: %w", s.name, err)
	}
	s.Kill()
	err = filepath.WalkDir(filepath.Join(s.dir, "appendonlydir"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		synced, err := s.synced(info)
		if err != nil || synced >= info.Size() {
			return err
		}
		lost += info.Size() - synced
		return os.Truncate(path, synced)
	})
	return lost, err
}

// synced returns how many bytes of a file are on the disk.
func (s *Server) synced(info fs.FileInfo) (int64, error) {
	inode := info.Sys().(*syscall.Stat_t).Ino
	size, err := os.ReadFile(filepath.Join(s.syncedDir(), strconv.FormatUint(inode, 10)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil && len(size) != 8 {
		err = fmt.Errorf("the record of synced bytes has %d bytes, want 8", len(size))
	}
	if err != nil {
		return 0, err
	}
	return int64(binary.NativeEndian.Uint64(size)), nil
}
