//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

const rubyClient = "../../client/ruby"

// The Ruby client passes its tests as a gem that is built and installed without a network.
func TestRubyPackage(t *testing.T) {
	t.Parallel()
	needRuby(t)
	dir := t.TempDir()
	gem := buildGem(t, rubyClient, dir)
	home := installGem(t, gem)
	_, h, _ := five(t)
	// The tests are copied, so that they do not find the source beside them.
	if err := os.CopyFS(filepath.Join(dir, "test"), os.DirFS(filepath.Join(rubyClient, "test"))); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"test_redlockd.rb", "test_sidekiq.rb"} {
		tests := exec.Command("ruby", "-W", "-I", gemLib(home), filepath.Join("test", file))
		tests.Dir = dir
		tests.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket, "REDLOCKD_LIB="+gemLib(home),
			"REDLOCKD_ADAPTERS="+adapter(t, "sidekiq.rb"), "REDLOCKD_ROUNDS="+strconv.Itoa(rounds(300, 10_000)))
		if output, err := combined(tests); err != nil {
			t.Errorf("%s: %v\n%s", file, err, output)
		}
	}
}

// buildGem builds the gem as packaging/release does.
func buildGem(t *testing.T, source, into string) string {
	t.Helper()
	gem := filepath.Join(into, "redlockd-0.9.0.gem")
	build := exec.Command("gem", "build", "--strict", "--output", gem, "redlockd.gemspec")
	build.Dir = source
	if output, err := combined(build); err != nil {
		t.Fatalf("gem build: %v\n%s", err, output)
	}
	return gem
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

func gemLib(home string) string { return filepath.Join(home, "gems", "redlockd-0.9.0", "lib") }

func needRuby(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("ruby is needed: apt-get install ruby")
	}
}
