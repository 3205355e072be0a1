package statefile

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
)

// keeping is a state of a merge that keeps the bytes of its records. It calls do at every 1000th
// record, while it reads them and while they are written.
type keeping struct {
	words
	kept [][]byte
	do   func()
}

func (k *keeping) ApplyAll(records iter.Seq[[]byte]) error {
	for record := range records {
		if k.kept = append(k.kept, record); len(k.kept)%1000 == 0 {
			k.do()
		}
	}
	return nil
}

func (k *keeping) Dump(yield func([]byte)) {
	for i, record := range k.kept {
		if yield(record); i%1000 == 0 {
			k.do()
		}
	}
}

// If somebody truncates a file while a merge writes the bytes that it has kept of it, writing stops
// for good, and the process continues.
func TestTruncationWhileAMergeWrites(t *testing.T) {
	var reported []error
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.Failed = func(err error) { reported = append(reported, err) }
	o.Merge = func() State {
		k := &keeping{}
		k.do = func() { _ = os.Truncate(o.Path+".1", 0) } // after the first record was written
		return k
	}
	sf, _ := open(t, o)
	for i := range 30 {
		sf.Append(fmt.Appendf(nil, "k%d=%d", i, i))
		sf.merges.Wait()
	}
	if len(reported) != 1 {
		t.Errorf("Failed was called with %v, want once with a truncated file", reported)
	}
	wantNoFiles(t, o.Path)
	sf.Close()
}
