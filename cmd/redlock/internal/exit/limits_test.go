package exit

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// redlock reports too little address space. Otherwise the Go runtime would end the process with a
// stack trace.
func TestAddressSpace(t *testing.T) {
	if err := checkAddressSpace(unix.RLIM_INFINITY); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	err := checkAddressSpace(1_900_000 * 1024)
	f, is := errors.AsType[*Failure](err)
	if !is || f.Code != System || !strings.Contains(err.Error(), "1945 MB of address space, and redlock needs 2000: raise the limit (ulimit -v 1953125)") {
		t.Errorf("with a tight one: %v", err)
	}
}
