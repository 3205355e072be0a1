package systemd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fakeSystemctl puts a systemctl into $PATH that prints a word and exits with 1.
func fakeSystemctl(t *testing.T, word string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$*\" = is-system-running ] || exit 2\necho '" + word + "'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The host stops only if systemctl says so. If it says nothing useful, that is an error.
func TestSystemStops(t *testing.T) {
	for word, want := range map[string]struct {
		stops bool
		err   string
	}{
		"stopping": {true, ""}, "running": {false, ""}, "degraded": {false, ""}, "starting": {false, ""},
		"offline": {false, `says "offline"`}, "unknown": {false, `says "unknown"`}, "": {false, "exit status 1"},
	} {
		t.Run(word, func(t *testing.T) {
			fakeManager(t)
			m, err := FromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			fakeSystemctl(t, word)
			stops, err := m.SystemStops()
			if stops != want.stops || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
				t.Errorf("got %v, %v; want %v and an error with %q", stops, err, want.stops, want.err)
			}
		})
	}
}

// Without a service manager nobody is asked.
func TestSystemStopsWithoutManager(t *testing.T) {
	fakeSystemctl(t, "stopping")
	if stops, err := (*Manager)(nil).SystemStops(); stops || err != nil {
		t.Errorf("got %v, %v; want false", stops, err)
	}
}

// systemd sends SIGTERM to all processes of a service that it stops. If that ends systemctl, it is
// started again.
func TestSystemStopsOutlastsSIGTERM(t *testing.T) {
	fakeManager(t)
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncd '" + dir + "'; [ -e second ] && echo stopping && exit 1; touch second; kill -TERM $$\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if stops, err := m.SystemStops(); !stops || err != nil {
		t.Errorf("got %v, %v; want true", stops, err)
	}
}

// A SIGTERM for a child, such as systemctl, is none for this process. Without checkPidfd, four of 40
// processes were told of one.
func TestSIGTERMOfChild(t *testing.T) {
	if os.Getenv("STARTS_PROGRAM") != "" {
		startProgram()
		return
	}
	for range 40 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSIGTERMOfChild$")
		cmd.Env = append(os.Environ(), "STARTS_PROGRAM=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		var wg sync.WaitGroup
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			switch lines.Text() {
			case "ready":
				wg.Go(func() { terminateChildren(cmd.Process.Pid, ended) })
				in.Close()
			case "terminated":
				t.Error("the process was told of a SIGTERM for its child")
			}
		}
		close(ended)
		wg.Wait()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// startProgram is the process that TestSIGTERMOfChild starts.
func startProgram() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if _, err := FromEnvironment(); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	exec.Command("true").Run() // it may be terminated
	select {
	case <-signals:
		fmt.Println("terminated")
	default:
	}
}

// terminateChildren sends SIGTERM once to each child of a process, until ended is closed.
func terminateChildren(pid int, ended <-chan struct{}) {
	seen := map[int]bool{}
	for {
		select {
		case <-ended:
			return
		default:
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, file := range files {
			list, _ := os.ReadFile(file) // the thread may have ended
			for _, text := range strings.Fields(string(list)) {
				if child, err := strconv.Atoi(text); err == nil && !seen[child] {
					seen[child] = true
					syscall.Kill(child, syscall.SIGTERM)
				}
			}
		}
	}
}
