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

//go:embed testdata/clock-skew.c
var skewSource []byte

// Skewable makes SetClock possible. It needs a C compiler (cc).
func Skewable() Option { return func(s *Server) { s.prepare = prepareSkew } }

// SetClock steps the server's wall clock at once. From then on the clock is ahead of this host's
// clock by so much, also after restarts; a negative value means behind. The server must have been
// started with Skewable.
func (s *Server) SetClock(ahead time.Duration) error {
	offset := binary.NativeEndian.AppendUint64(nil, uint64(ahead.Nanoseconds()))
	file, err := os.OpenFile(s.skewFile(), os.O_WRONLY, 0) // missing if the server is not Skewable
	if err != nil {
		return fmt.Errorf("redis-server %s: stepping its clock: %w", s.name, err)
	}
	defer file.Close()
	if _, err := file.WriteAt(offset, 0); err != nil {
		return fmt.Errorf("redis-server %s: stepping its clock: %w", s.name, err)
	}
	return nil
}

func (s *Server) skewFile() string { return filepath.Join(s.dir, "skew") }

// prepareSkew compiles the shim into the server's directory at the first start, and makes the
// process load it.
func prepareSkew(s *Server, cmd *exec.Cmd) error {
	shim := filepath.Join(s.dir, "skew.so")
	if _, err := os.Stat(shim); err != nil {
		if err := buildSkew(s, shim); err != nil {
			return err
		}
	}
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+shim, "SKEW_FILE="+s.skewFile())
	return nil
}

func buildSkew(s *Server, shim string) error {
	source := filepath.Join(s.dir, "clock-skew.c")
	if err := os.WriteFile(source, skewSource, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(s.skewFile(), make([]byte, 8), 0o600); err != nil {
		return err
	}
	output, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", shim, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling the clock shim (Debian: apt-get install gcc libc6-dev): %w: %s", err, output)
	}
	return nil
}
