//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const rubyClient = "../../client/ruby"

// The Ruby client passes its tests as the gem of a release, installed without a network.
func TestRubyPackage(t *testing.T) {
	t.Parallel()
	needRuby(t)
	dir := t.TempDir()
	home := installGem(t, clientPackage(t, "redlockd-VERSION.gem"))
	_, h, _ := five(t)
	// The tests are copied, so that they do not find the source beside them.
	if err := os.CopyFS(filepath.Join(dir, "test"), os.DirFS(filepath.Join(rubyClient, "test"))); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"test_redlockd.rb", "test_sidekiq.rb"} {
		tests := exec.Command("ruby", "-W", "-I", gemLib(t, home), filepath.Join("test", file))
		tests.Dir = dir
		passes(t, tests, "REDLOCK_SOCKET="+h.socket, "REDLOCKD_LIB="+gemLib(t, home),
			"REDLOCKD_ADAPTERS="+adapter(t, "sidekiq.rb"), "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(300, 10_000)))
	}
}

// gem build writes the same description and files as a release has, except the licence.
func TestRubyGem(t *testing.T) {
	t.Parallel()
	needRuby(t)
	built := filepath.Join(t.TempDir(), "redlockd.gem")
	build := exec.Command("gem", "build", "--strict", "--output", built, "redlockd.gemspec")
	build.Dir = rubyClient
	build.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767225600")
	if output, err := combined(build); err != nil {
		t.Fatalf("gem build: %v\n%s", err, output)
	}
	described := func(gem string) string {
		text, err := printed(exec.Command("gem", "specification", gem))
		if err != nil {
			t.Fatalf("gem specification: %v", err)
		}
		return regexp.MustCompile(`(?m)^rubygems_version: .*$`).ReplaceAllString(string(text), "")
	}
	want := strings.Replace(described(built), "files:\n", "files:\n- LICENSE\n", 1)
	if got := described(clientPackage(t, "redlockd-VERSION.gem")); got != want {
		t.Errorf("a release describes it as\n%s\nand gem build as\n%s", got, want)
	}
}

// installGem returns the folder into which it installed a gem.
func installGem(t *testing.T, gem string) string {
	t.Helper()
	home := t.TempDir()
	if output, err := combined(exec.Command("gem", "install", "--local", "--no-document", "--install-dir", home, gem)); err != nil {
		t.Fatalf("gem install: %v\n%s", err, output)
	}
	return home
}

func gemLib(t *testing.T, home string) string {
	t.Helper()
	return filepath.Join(home, "gems", "redlockd-"+clientVersion(t), "lib")
}

func needRuby(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("ruby is needed: apt-get install ruby")
	}
}
