//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// makeRoot makes a root file system in an empty directory, from packages of this host: the
// essential ones, systemd and D-Bus, and the packages that they need. Nothing is downloaded. Users
// and /etc are those of the packages, except that a config file has the changes of this host.
func makeRoot(root string) error {
	packages, err := packagesForRoot()
	if err != nil {
		return err
	}
	files, err := filesOf(packages)
	if err != nil {
		return err
	}
	if err := copyFiles(files, root); err != nil {
		return err
	}
	status, err := printed(exec.Command("dpkg-query", append([]string{"--status"}, packages...)...))
	if err != nil {
		return err
	}
	written := map[string]string{"/var/lib/dpkg/status": string(status), "/etc/machine-id": ""}
	// Scripts of packages make these files. Of the other scripts only triggers are needed: as dpkg
	// finds none of its files about triggers, it runs all of them. An upgrade would run them later.
	for _, name := range []string{"passwd", "group"} {
		content, err := os.ReadFile(filepath.Join(root, "usr", "share", "base-passwd", name+".master"))
		if err != nil {
			return err
		}
		written["/etc/"+name] = string(content)
	}
	for name, content := range written {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{{"systemd-sysusers", "--root=" + root}, {"dpkg", "--root=" + root, "--triggers-only", "--pending"}} {
		if output, err := combined(exec.Command(argv[0], argv[1:]...)); err != nil {
			return fmt.Errorf("%q: %w\n%s", argv, err, output)
		}
	}
	return nil
}

// packagesForRoot returns the names of installed packages, as dpkg has them.
func packagesForRoot() ([]string, error) {
	all, err := printed(exec.Command("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}\t${Package}\t${binary:Package}\t${Essential}\n"))
	if err != nil {
		return nil, err
	}
	installed := map[string]string{} // by name without the architecture
	wanted := []string{"systemd", "dbus"}
	for line := range strings.Lines(string(all)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		if !strings.HasPrefix(field[0], "ii") {
			continue
		}
		if _, second := installed[field[1]]; !second || !strings.Contains(field[2], ":") {
			installed[field[1]] = field[2]
		}
		if field[len(field)-1] == "yes" {
			wanted = append(wanted, field[1])
		}
	}
	argv := []string{"depends", "--recurse", "--installed", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}
	needed, err := printed(exec.Command("apt-cache", append(argv, wanted...)...))
	if err != nil {
		return nil, err
	}
	var packages []string
	for line := range strings.Lines(string(needed)) {
		if name, ok := installed[strings.TrimSpace(line)]; ok && !strings.HasPrefix(line, " ") {
			packages = append(packages, name)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// filesOf returns the files and directories of packages that exist, and dpkg's own about them. Their
// directories have no symbolic links: /bin may be one.
func filesOf(packages []string) ([]string, error) {
	list, err := printed(exec.Command("dpkg-query", append([]string{"--listfiles"}, packages...)...))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		names = append(names, strings.TrimSuffix(line, "\n"))
	}
	for _, name := range packages {
		about, err := filepath.Glob("/var/lib/dpkg/info/" + name + ".*")
		if err != nil {
			return nil, err
		}
		names = append(names, about...)
	}
	var files []string
	for _, name := range names {
		if !strings.HasPrefix(name, "/") || strings.HasPrefix(name, "/usr/share/doc/") || strings.HasPrefix(name, "/usr/share/locale/") {
			continue // a diversion, or not needed
		}
		if _, err := os.Lstat(name); err != nil {
			continue // such as a manual page that dpkg was told to leave out
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(dir, filepath.Base(name)))
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func copyFiles(files []string, root string) error {
	pack := exec.Command("sh", "-c", `tar -C / --no-recursion --null -T - -cf - | tar -C "$0" -xf -`, root)
	pack.Stdin = strings.NewReader("." + strings.Join(files, "\x00."))
	if output, err := combined(pack); err != nil {
		return fmt.Errorf("the files of this host's packages: %w\n%s", err, output)
	}
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}
