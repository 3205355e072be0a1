//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const phpClient = "../../client/php"

// The PHP client passes its tests as Composer installs the archive of a release, and so do its adapters with
// symfony/lock and illuminate/cache of Debian.
func TestPHPPackage(t *testing.T) {
	t.Parallel()
	needPHP(t)
	project := phpProject(t)
	_, h, _ := five(t)
	for file, needs := range map[string]string{
		"redlockd.php": "", "workers.php": "", "symfony.php": "/usr/share/php/Symfony/Component/Lock/autoload.php", "laravel.php": "/usr/share/php/Illuminate/Cache/autoload.php",
	} {
		t.Run(file, func(t *testing.T) {
			if _, err := os.Stat(needs); needs != "" && err != nil {
				t.Skipf("the framework is needed: apt-get install php-symfony-lock php-illuminate-cache: %v", err)
			}
			testPHP(t, h, project, file)
		})
	}
	t.Run("php-fpm", func(t *testing.T) {
		found, err := filepath.Glob("/usr/sbin/php-fpm*")
		if err != nil || len(found) == 0 {
			t.Skip("php-fpm is needed: apt-get install php-fpm")
		}
		testPHP(t, h, project, "workers.php", "REDLOCKD_FPM="+found[0])
	})
}

func testPHP(t *testing.T, h *host, project, file string, env ...string) {
	t.Helper()
	passes(t, exec.Command("php", filepath.Join(phpClient, "tests", file)),
		append(env, "REDLOCK_SOCKET="+h.socket, "REDLOCKD_AUTOLOAD="+filepath.Join(project, "vendor", "autoload.php"))...)
}

func needPHP(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("php is needed: apt-get install php-cli")
	}
}

// phpProject returns a folder with vendor/autoload.php, installed with Composer if there is one.
func phpProject(t *testing.T) string {
	t.Helper()
	archive, dir := clientPackage(t, "redlockd-php-VERSION.zip"), t.TempDir()
	if _, err := combined(exec.Command("sh", "-c", `composer --version && php -r 'exit(extension_loaded("zip") ? 0 : 1);'`)); err != nil {
		unzip(t, archive, filepath.Join(dir, "vendor", "redlockd"))
		writeFile(t, filepath.Join(dir, "vendor", "autoload.php"), "<?php require __DIR__ . '/redlockd/src/autoload.php';")
		return dir
	}
	writeFile(t, filepath.Join(dir, "composer.json"), `{"require": {"redlockd/redlockd": "*"},
		"repositories": [{"type": "artifact", "url": "`+filepath.Dir(archive)+`"}, {"packagist": false}]}`)
	install := exec.Command("composer", "install", "--no-interaction", "--no-cache")
	install.Dir = dir
	install.Env = append(os.Environ(), "HOME="+dir, "COMPOSER_ALLOW_SUPERUSER=1", "COMPOSER_DISABLE_NETWORK=1")
	if output, err := combined(install); err != nil {
		t.Fatalf("composer install: %v\n%s", err, output)
	}
	return dir
}
