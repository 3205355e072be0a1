package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

// roleVariable names the environment variable that makes the test binary another program.
const (
	roleVariable = "REDLOCKD_TEST_ROLE"
	roleRedlockd = "redlockd" // the daemon itself
	roleStuck    = "stuck"    // a daemon whose shutdown hangs
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleRedlockd:
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case roleStuck:
		os.Exit(stuck())
	}
	os.Exit(m.Run())
}

func stuck() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	serve := func(ctx context.Context, _ *config.Config, _ hclog.Logger, _ daemon.RunOptions) error {
		fmt.Println("serving")
		<-ctx.Done()
		fmt.Println("stopping")
		select {}
	}
	c := &command{stdout: os.Stdout, stderr: os.Stderr, signals: signals, serve: serve}
	return c.run([]string{"-dev"})
}

// program is the test binary in a role. It ends after 20 s at the latest.
type program struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *bufio.Reader
	log            io.Closer // of what stderr reads
}

func startProgram(t *testing.T, role string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	pipe := func(r io.ReadCloser, err error) io.ReadCloser {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	stdout, stderr := pipe(cmd.StdoutPipe()), pipe(cmd.StderrPipe())
	p := &program{t: t, cmd: cmd, stdout: bufio.NewReader(stdout), stderr: bufio.NewReader(stderr), log: stderr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
	})
	return p
}

// await reads lines until a line contains text.
func (p *program) await(from *bufio.Reader, text string) {
	p.t.Helper()
	for {
		line, err := from.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("%v before %q was printed, last %q", err, text, line)
		}
	}
}

func (p *program) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// The program leaves no core dumps. SIGHUP does not end it, and SIGTERM ends it cleanly.
func TestProgram(t *testing.T) {
	t.Parallel()
	p := startProgram(t, roleRedlockd, "-dev", "-socket", filepath.Join(t.TempDir(), "s"))
	p.await(p.stdout, "nc -U ")
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if _, rest, _ := strings.Cut(string(limits), "Max core file size"); err != nil || strings.Join(strings.Fields(rest)[:2], " ") != "0 0" {
		t.Errorf("the limits are %s, %v; want no core dumps", limits, err)
	}
	p.signal(syscall.SIGHUP)
	p.await(p.stderr, "config reloaded")
	p.signal(syscall.SIGTERM)
	p.await(p.stderr, "asked to stop")
	io.Copy(io.Discard, p.stderr)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v, want exit code 0", err)
	}
}

// If the reader of the log ends, the daemon keeps its locks. Nobody can read what it logs when
// it is told to stop. This test guards signal.Ignore in run.
func TestLogWithoutAReader(t *testing.T) {
	t.Parallel()
	p := startProgram(t, roleRedlockd, "-dev", "-socket", filepath.Join(t.TempDir(), "s"))
	p.await(p.stdout, "nc -U ")
	p.log.Close()
	p.signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v, want exit code 0", err)
	}
}

// If the shutdown hangs, the second signal has its default effect and ends the process, also if no
// daemon has taken the config of a SIGHUP yet. SIGHUP itself has no effect while the daemon stops.
func TestSecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	p := startProgram(t, roleStuck)
	p.await(p.stdout, "serving")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGTERM)
	p.await(p.stderr, "asked to stop")
	p.await(p.stdout, "stopping")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGINT)
	p.cmd.Wait()
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("the program ended with %v, want SIGINT", p.cmd.ProcessState)
	}
}

// The exit code matches the error that the program printed. In the journal, the error has a
// priority.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(stderr.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-config", filepath.Join(t.TempDir(), "none.hcl"))
	cmd.Env = append(os.Environ(), roleVariable+"="+roleRedlockd, fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino))
	cmd.Stderr = stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("the program ended with %v, want exit code %d", err, exitFailed)
	}
	printed, err := os.ReadFile(stderr.Name())
	if want := "<3>config: open "; err != nil || !strings.HasPrefix(string(printed), want) {
		t.Errorf("the program printed %q, %v; want %s…", printed, err, want)
	}
}
