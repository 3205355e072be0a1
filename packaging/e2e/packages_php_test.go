//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const phpClient = "../../client/php"

// The PHP client passes its tests, and so do its adapters with symfony/lock and illuminate/cache of Debian.
func TestPHPPackage(t *testing.T) {
	t.Parallel()
	needPHP(t)
	dir := t.TempDir()
	source := filepath.Join(dir, "php") // as it is in the archive
	if err := os.CopyFS(source, os.DirFS(phpClient)); err != nil {
		t.Fatal(err)
	}
	_, h, _ := five(t)
	for file, needs := range map[string]string{
		"redlockd.php": "", "symfony.php": "/usr/share/php/Symfony/Component/Lock/autoload.php", "laravel.php": "/usr/share/php/Illuminate/Cache/autoload.php",
	} {
		t.Run(file, func(t *testing.T) {
			if _, err := os.Stat(needs); needs != "" && err != nil {
				t.Skipf("the framework is needed: apt-get install php-symfony-lock php-illuminate-cache: %v", err)
			}
			tests := exec.Command("php", filepath.Join(source, "tests", file))
			tests.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket)
			if output, err := combined(tests); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func needPHP(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("php is needed: apt-get install php-cli")
	}
}
