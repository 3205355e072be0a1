package session

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

func readTestFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func mustLoad(t *testing.T, source string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(source), "redlockd.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// nodesSource returns a config of n nodes.
func nodesSource(n int) string {
	var b strings.Builder
	b.WriteString("quorum {\n")
	for i := range n {
		fmt.Fprintf(&b, "  node \"n%d\" { address = \"10.0.0.%d:6379\" }\n", i, i+1)
	}
	b.WriteString("}\n")
	return b.String()
}
