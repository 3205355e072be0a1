//go:build linux

package e2e

import (
	"debug/buildinfo"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The checksums cover all files that package.sh makes.
func TestChecksums(t *testing.T) {
	p := needPackages(t)
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = p.dir
	output, err := combined(check)
	if err != nil {
		t.Errorf("sha256sum: %v\n%s", err, output)
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "SHA256SUMS" && !strings.Contains(string(output), name+": OK\n") {
			t.Errorf("SHA256SUMS does not have %s:\n%s", name, output)
		}
	}
}

// contents has the fields of a CycloneDX list that these tests read.
type contents struct {
	Format     string `json:"bomFormat"`
	Components []struct {
		Name     string
		Version  string
		PURL     string
		Hashes   []struct{ Content string }
		Licenses []struct{ Expression string }
	}
}

// The packages list the modules that the programs report, each with its version and a licence.
func TestPackagedContents(t *testing.T) {
	p := needPackages(t)
	packed := unpacked(t, p.deb(), "./usr/share/doc/redlockd/redlockd.cdx.json")
	if packed != readFile(t, filepath.Join(p.dir, "redlockd.cdx.json")) {
		t.Error("the .deb has another redlockd.cdx.json than there is beside it")
	}
	var list contents
	if err := json.Unmarshal([]byte(packed), &list); err != nil || list.Format != "CycloneDX" {
		t.Fatalf("format %q, %v; want CycloneDX", list.Format, err)
	}
	listed := map[string]bool{}
	for _, c := range list.Components {
		listed[c.Name+" "+c.Version] = true
		if len(c.Licenses) != 1 || c.Licenses[0].Expression == "" {
			t.Errorf("%s: no licence", c.Name)
		}
		if hashes := sums(t, p); len(c.Hashes) > 0 && hashes[c.Name] != c.Hashes[0].Content {
			t.Errorf("%s: SHA-256 %s, and in SHA256SUMS %q", c.Name, c.Hashes[0].Content, hashes[c.Name])
		}
	}
	wanted := append(builtIn(t, p), "redlock 1.0.0", "redlockd 1.0.0")
	if got := slices.Sorted(maps.Keys(listed)); !slices.Equal(got, slices.Compact(slices.Sorted(slices.Values(wanted)))) {
		t.Errorf("listed\n%q\nbuilt in\n%q", got, wanted)
	}
}

// Each package contains the licences of everything in it.
func TestPackagedLicences(t *testing.T) {
	p := needPackages(t)
	copyright, text := unpacked(t, p.deb(), "./usr/share/doc/redlockd/copyright"), readFile(t, filepath.Join(p.dir, "THIRD-PARTY"))
	for _, module := range builtIn(t, p) {
		if !strings.Contains(copyright, "\n "+module+": ") || !strings.Contains(text, "\n"+module+": ") {
			t.Errorf("the copyright file or THIRD-PARTY lacks %s", module)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Copyright ") && !strings.Contains(copyright, " "+line) {
			t.Errorf("the copyright file lacks %q", line)
		}
	}
}

// unpacked returns the text of a file in a .deb.
func unpacked(t *testing.T, deb, file string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skipf("dpkg-deb is not to be had: %v", err)
	}
	output, err := printed(exec.Command("sh", "-c", `dpkg-deb --fsys-tarfile "$0" | tar -xO "$1"`, deb, file))
	if err != nil {
		t.Fatalf("%s: %s: %v", deb, file, err)
	}
	return string(output)
}

// sums returns the checksums by file.
func sums(t *testing.T, p packaged) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(readFile(t, filepath.Join(p.dir, "SHA256SUMS"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		all[name] = sum
	}
	return all
}

// builtIn returns the modules and versions that the programs report, and Go's own.
func builtIn(t *testing.T, p packaged) (modules []string) {
	t.Helper()
	for _, name := range []string{"redlock", "redlockd"} {
		info, err := buildinfo.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, "std "+info.GoVersion)
		for _, dep := range info.Deps {
			modules = append(modules, dep.Path+" "+dep.Version)
		}
	}
	return modules
}
