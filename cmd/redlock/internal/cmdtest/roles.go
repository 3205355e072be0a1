package cmdtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

// Roles are the programs that the test binary can run as. RoleVariable names one in the
// environment.
var Roles = map[string]func(args []string) int{
	roleDaemon: daemonMain,
	rolePuppet: puppetMain,
}

const (
	RoleVariable   = "REDLOCK_TEST_ROLE"
	RoleRedlock    = "redlock" // the command itself
	roleDaemon     = "daemon"  // redlockd -dev
	rolePuppet     = "puppet"  // the command under the lock
	SocketVariable = "REDLOCK_SOCKET"
)

// Main runs the role that the environment names, or else the tests. It returns the exit code.
func Main(m *testing.M) int {
	if name := os.Getenv(RoleVariable); name != "" {
		role := Roles[name]
		if role == nil { // otherwise this process would run the tests again and again
			fmt.Fprintf(os.Stderr, "this test binary has no role %q\n", name)
			return 1
		}
		return role(os.Args[1:])
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // without this each process takes a second longer with -race
	flag.Parse()
	if Roles[RoleRedlock] != nil {
		if err := StartReaper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if Roles[RoleRedlock] != nil && hasRaceDetector() {
		dir, err := os.MkdirTemp("", "rl")
		if err == nil {
			defer os.RemoveAll(dir)
			err = buildPlain(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// Most tests mostly wait for processes. See daemonSlots for the others.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	return m.Run()
}

func hasRaceDetector() bool {
	info, _ := debug.ReadBuildInfo() // not nil with Go modules
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// buildPlain builds TestBinary without the race detector, with which hundreds of processes take four
// times as much of the processors. The tests themselves keep it. The settings are those of the
// shipped programs, whose packages are in Go's cache.
func buildPlain(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it, too
		return err
	}
	TestBinary = filepath.Join(dir, filepath.Base(os.Args[0]))
	build := exec.Command("go", "test", "-c", "-vet=off", "-race=false", "-trimpath", "-ldflags=-w", "-o", TestBinary)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("the program under test does not build: %w\n%s", err, output)
	}
	return nil
}

// daemonMain is redlockd -dev with the socket of the environment.
func daemonMain([]string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := config.Dev()
	cfg.Socket.Path = os.Getenv(SocketVariable)
	err := daemon.Run(ctx, cfg, hclog.NewNullLogger(), daemon.RunOptions{
		Dev:   true,
		Ready: func() { fmt.Println("ready") },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// puppetMain prints the signals that it gets. It ends on "exit N" in stdin, or with code 3 after a
// signal that its arguments name.
func puppetMain(args []string) int {
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	exits := make(chan int)
	go readOrders(exits)
	fmt.Println("up", os.Getpid())
	for {
		select {
		case sig := <-caught:
			fmt.Println("got", sig)
			if slices.Contains(args, sig.String()) {
				return 3
			}
		case code := <-exits:
			return code
		}
	}
}

func readOrders(exits chan<- int) {
	for {
		var code int
		if _, err := fmt.Scanf("exit %d\n", &code); err != nil {
			return
		}
		exits <- code
	}
}
