package statefile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Little of the files counts as memory of the process, even if they are large, and also during a merge.
// The records that a merge keeps stay correct.
func TestFilesTakeLittleMemory(t *testing.T) {
	const records, size, bound = 12_000, 1000, 3 << 20
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.SegmentSize = 4 << 20
	most := 0
	look := func() { most = max(most, resident(t, o.Path)) }
	o.Merge = func() State { return &keeping{do: look} }
	sf, want := open(t, o)
	value := strings.Repeat("x", size)
	for i := range records {
		record := fmt.Appendf(nil, "k%d=%s", i, value)
		sf.Append(record)
		sf.merges.Wait()
		if err := want.Apply(record); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			look()
		}
	}
	sf.Freeze()
	if merged := len(sf.sealed[0].segment.memory); merged < 2*bound || most > bound {
		t.Errorf("with a merged file of %d bytes, %d bytes were resident, want at most %d", merged, most, bound)
	}
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// resident returns how many bytes of the files at a path are resident memory of the process.
func resident(t *testing.T, path string) (bytesOf int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case !strings.HasSuffix(fields[0], ":"):
			ours = slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(field, path+".") })
		case ours && fields[0] == "Rss:":
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			bytesOf += kb << 10
		}
	}
	return bytesOf
}
