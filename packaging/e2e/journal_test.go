//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// If stderr is the journal's stream, log lines have priorities. If JOURNAL_STREAM names another
// file than stderr, such as for a pipe behind a service, they have none.
func TestLogOfStream(t *testing.T) {
	for stream, prefix := range map[string]string{"$(stat -Lc %d:%i /dev/stderr)": "<6>[INFO]  serving: ", "$(stat -Lc %d:%i /dev/stdout)": "20"} {
		d := start(t, t.TempDir(), "sh", "-c", "JOURNAL_STREAM="+stream+` exec "$0" -dev -socket s`, filepath.Join(binaries, "redlockd"))
		if line := awaitLog(d, "serving: "); !strings.HasPrefix(line, prefix) {
			t.Errorf("%s: got %q, want it to begin with %q", stream, line, prefix)
		}
	}
}
