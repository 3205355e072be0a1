package daemon

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
)

// logged is what was logged, for any goroutine.
type logged struct {
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func granted(names string) string {
	return strings.Replace(granted5, `lock=\S+`, `lock=`+names, 1)
}

func readTestFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
