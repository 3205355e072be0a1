package cmdtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// roleTests is a test process with a child in a session of its own, which has a child.
const roleTests = "tests"

func init() {
	Roles[roleTests] = func([]string) int {
		child := exec.Command("setsid", "sh", "-c", `sleep 1000 & echo $!; wait`)
		child.Stdout = os.Stdout
		if err := StartReaper(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(child.Run())
		return 1
	}
}

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// If a test process is killed, none of its processes stays.
func TestKilledTestsLeaveNoProcess(t *testing.T) {
	tests := exec.Command(os.Args[0])
	tests.Env = append(os.Environ(), RoleVariable+"="+roleTests)
	out, err := tests.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tests.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	if err := tests.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	Await(t, "the end of the last process", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	tests.Wait()
}
