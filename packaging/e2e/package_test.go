//go:build linux

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

// packagedVersion is the version of the packages that are tested.
const packagedVersion = "1.0.0"

// packaged is the output of package.sh for this tree.
type packaged struct {
	dir    string
	output []byte
	err    error
}

// packages returns the packages of this tree: those that test.sh has built, if they are complete
// (the checksums are written last), or newly built ones.
var packages = sync.OnceValue(func() packaged {
	dir := os.Getenv("REDLOCKD_PACKAGES")
	if sums, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); dir != "" && err == nil && sums.Size() > 0 {
		return packaged{dir: dir}
	}
	dir = filepath.Join(binaries, "packages")
	cmd := exec.Command(filepath.Join("..", "package.sh"), packagedVersion, dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767225600") // as in newCheckout
	output, err := combined(cmd)
	return packaged{dir, output, err}
})

// noNFPM returns why there is no nfpm, or an empty text.
var noNFPM = sync.OnceValue(func() string {
	if output, err := combined(goCommand("run", nfpm, "--version")); err != nil {
		return string(output) + err.Error()
	}
	return ""
})

// needPackages skips the test if there is no nfpm.
func needPackages(t *testing.T) packaged {
	t.Helper()
	if why := noNFPM(); why != "" {
		t.Skipf("nfpm cannot be built, which takes the Go module proxy: %s", why)
	}
	p := packages()
	if p.err != nil {
		t.Fatalf("package.sh: %v\n%s", p.err, p.output)
	}
	return p
}

func (p packaged) deb() string {
	return filepath.Join(p.dir, "redlockd_1.0.0-1_"+runtime.GOARCH+".deb")
}

// copyTree copies a tree without names that begin with a dot, such as version control.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(from, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	if output, err := combined(exec.Command("cp", append(append([]string{"-r", "--"}, entries...), to)...)); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// The packages have the version that package.sh was given.
func TestPackagedVersion(t *testing.T) {
	p := needPackages(t)
	for argv, want := range map[string]string{
		"redlockd -version": "redlockd 1.0.0\n", "redlock version": "redlock 1.0.0\n", "redlock --version": "redlock 1.0.0\n",
	} {
		words := strings.Fields(argv)
		output, err := printed(exec.Command(filepath.Join(p.dir, words[0]), words[1:]...))
		if err != nil || string(output) != want {
			t.Errorf("%s: got %q, %v; want %q", argv, output, err, want)
		}
	}
}

// lintian finds no errors. Findings that every Go program has are overridden.
func TestLintian(t *testing.T) {
	t.Parallel()
	lintian, err := exec.LookPath("lintian")
	if err != nil {
		t.Skip("lintian is not installed (Debian: apt-get install lintian)")
	}
	output, err := combined(exec.Command(lintian, "--allow-root", "--fail-on=error,warning", "--suppress-tags=unknown-field", needPackages(t).deb()))
	if err != nil {
		t.Errorf("lintian: %v\n%s", err, output)
	}
}

// The .rpm has scripts of its own, because rpm passes other arguments than Debian.
func TestRPMScripts(t *testing.T) {
	p := needPackages(t)
	for _, script := range []string{"post", "preun", "postun"} {
		text := readFile(t, filepath.Join("..", "rpm", script))
		if strings.Contains(text, "configure") || strings.Contains(text, "deb-systemd") {
			t.Errorf("rpm/%s is Debian's", script)
		}
	}
	rpm, err := exec.LookPath("rpm")
	if err != nil {
		t.Skip("rpm is not installed (Debian: apt-get install rpm)")
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "*.rpm"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v; want one .rpm", files, err)
	}
	for question, want := range map[string][]string{
		"--scripts": {"systemctl try-restart redlockd.service", "systemctl --no-reload enable redlockd.socket"},
		"--list": {"/usr/sbin/redlockd", "/usr/lib/systemd/system/redlockd.socket", "/usr/share/zsh/site-functions/_redlock",
			"/usr/share/licenses/redlockd/THIRD-PARTY", "/usr/share/doc/redlockd/redlockd.cdx.json"},
		"--configfiles": {"/etc/redlockd/redlockd.hcl"},
	} {
		output, err := printed(exec.Command(rpm, "--query", "--package", question, files[0]))
		for _, word := range want {
			if err != nil || !strings.Contains(string(output), word) {
				t.Errorf("rpm %s: %v, want %s in\n%s", question, err, word, output)
			}
		}
	}
}

// After its removal, nothing is left of the .rpm.
func TestRPMIsRemoved(t *testing.T) {
	p := needPackages(t)
	rpm, err := exec.LookPath("rpm")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("root and rpm are needed (Debian: apt-get install rpm)")
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "*.rpm"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v; want one .rpm", files, err)
	}
	root := t.TempDir()
	for _, argv := range [][]string{{"--install", "--nodeps", "--noscripts", files[0]}, {"--erase", "--noscripts", "redlockd"}} {
		if output, err := combined(exec.Command(rpm, append([]string{"--root", root}, argv...)...)); err != nil {
			t.Fatalf("rpm %q: %v\n%s", argv, err, output)
		}
	}
	left, err := printed(exec.Command("find", root, "-name", "*redlock*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left, %v:\n%s", err, left)
	}
}

// Shells accept the completions.
func TestCompletions(t *testing.T) {
	p := needPackages(t)
	script, err := printed(exec.Command(filepath.Join(p.dir, "redlock"), "completion", "bash"))
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command("bash", "-n")
	check.Stdin = bytes.NewReader(script)
	if output, err := combined(check); err != nil || len(output) != 0 || len(script) == 0 {
		t.Errorf("bash: %v\n%s", err, output)
	}
	listed, err := printed(exec.Command("dpkg-deb", "--contents", p.deb()))
	if err != nil {
		t.Skipf("dpkg-deb is not to be had: %v", err)
	}
	for _, file := range []string{
		"usr/share/bash-completion/completions/redlock", "usr/share/zsh/vendor-completions/_redlock", "usr/share/fish/vendor_completions.d/redlock.fish",
	} {
		if !strings.Contains(string(listed), " ./"+file+"\n") {
			t.Errorf("the .deb lacks %s:\n%s", file, listed)
		}
	}
}
