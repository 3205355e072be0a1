package redlocktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// preload makes the next process of the server load a shim, which is compiled into its directory at
// the first start. env are more variables of the process.
func (s *Server) preload(cmd *exec.Cmd, name string, source []byte, env ...string) error {
	shim := filepath.Join(s.dir, name+".so")
	if _, err := os.Stat(shim); err != nil {
		if err := compile(filepath.Join(s.dir, name+".c"), source, shim); err != nil {
			return err
		}
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	const variable = "LD_PRELOAD="
	if i := slices.IndexFunc(cmd.Env, func(one string) bool { return strings.HasPrefix(one, variable) }); i >= 0 {
		cmd.Env[i] += ":" + shim
	} else {
		cmd.Env = append(cmd.Env, variable+shim)
	}
	cmd.Env = append(cmd.Env, env...)
	return nil
}

func compile(path string, source []byte, shim string) error {
	if err := os.WriteFile(path, source, 0o600); err != nil {
		return err
	}
	output, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", shim, path, "-ldl").CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling %s (Debian: apt-get install gcc libc6-dev): %w: %s", filepath.Base(path), err, output)
	}
	return nil
}
