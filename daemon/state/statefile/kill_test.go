package statefile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// killedChild names the state file of the process that TestKilledProcess kills.
const killedChild = "STATEFILE_TO_KILL"

// A process that is killed while it appends records that are larger than a page leaves a whole file, with
// every record whose Append has returned.
func TestKilledProcess(t *testing.T) {
	if path := os.Getenv(killedChild); path != "" {
		appendForEver(t, path)
	}
	o := options(t, filepath.Join(t.TempDir(), "t"))
	for round := range 20 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		child.Env = append(os.Environ(), killedChild+"="+o.Path)
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		appended := 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the child writes %q", lines.Text())
			}
			if appended = n; n == 20+round*13 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // it was killed
		sf, got := open(t, o)
		if n, err := strconv.Atoi(got["n"]); err != nil || n < appended || n > appended+1 {
			t.Errorf("%d records were appended, and the last one is %q", appended, got["n"])
		}
		sf.Close()
	}
}

// appendForEver appends records, and writes the number of each one to standard output after that.
func appendForEver(t *testing.T, path string) {
	o := options(t, path)
	o.MinSize = 64 << 10
	sf, _ := open(t, o)
	for n := 1; ; n++ {
		sf.Append(fmt.Appendf(nil, "n=%d", n))
		sf.Append(append([]byte("padding="), bytes.Repeat([]byte{'x'}, n*997%20_000)...))
		if _, err := fmt.Println(n); err != nil {
			os.Exit(1)
		}
	}
}
