package redlocktest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed testdata/clock-skew.c
var skewSource []byte

// Skewable makes SetClock and SetClockRate possible. It needs a C compiler (cc).
func Skewable() Option {
	return func(s *Server) {
		s.prepare = append(s.prepare, func(s *Server, cmd *exec.Cmd) error {
			if _, err := os.Stat(s.skewFile()); errors.Is(err, fs.ErrNotExist) {
				if err := os.WriteFile(s.skewFile(), make([]byte, skewSize), 0o600); err != nil {
					return err
				}
			}
			return s.preload(cmd, "skew", skewSource, "SKEW_FILE="+s.skewFile())
		})
	}
}

// The numbers of the skew file, as in testdata/clock-skew.c: bytes from its start.
const (
	skewOffset = 0
	skewAnchor = 8
	skewRate   = 16
	skewSize   = 24
)

// SetClock steps the server's wall clock at once. From then on the clock is ahead of this host's
// clock by so much, also after restarts; a negative value means behind. The server must have been
// started with Skewable.
func (s *Server) SetClock(ahead time.Duration) error { return s.skew(skewOffset, ahead.Nanoseconds()) }

// SetClockRate makes the server's wall clock run at rate seconds a second from now on: 1.01 is fast.
// Call it once. The server must have been started with Skewable.
func (s *Server) SetClockRate(rate float64) error {
	if err := s.skew(skewAnchor, time.Now().UnixNano()); err != nil {
		return err
	}
	return s.skew(skewRate, int64(math.Round((rate-1)*1e9)))
}

func (s *Server) skew(at, value int64) error {
	file, err := os.OpenFile(s.skewFile(), os.O_WRONLY, 0) // missing if the server is not Skewable
	if err != nil {
		return fmt.Errorf("redis-server %s: changing its clock: %w", s.name, err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(value)), at); err != nil {
		return fmt.Errorf("redis-server %s: changing its clock: %w", s.name, err)
	}
	return nil
}

func (s *Server) skewFile() string { return filepath.Join(s.dir, "skew") }
