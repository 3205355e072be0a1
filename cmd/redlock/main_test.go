package main

import (
	"os"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

func init() {
	cmdtest.Roles[cmdtest.RoleRedlock] = func(args []string) int { return run(args, os.Stdin, os.Stdout, os.Stderr) }
}

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }
