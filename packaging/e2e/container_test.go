//go:build linux

package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// redlockd accepts the arguments of the image's command, and the image has each file that they
// name.
func TestContainerfile(t *testing.T) {
	text := strings.ReplaceAll(readFile(t, filepath.Join("..", "container", "Containerfile")), "\\\n", " ")
	last := map[string]string{} // last line of each kind
	var copied []string
	known := regexp.MustCompile(`^(FROM|ARG|WORKDIR|COPY|RUN|USER|STOPSIGNAL|ENTRYPOINT|CMD) (.+)$`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		found := known.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("not a line of a Containerfile: %s", line)
		}
		last[found[1]] = found[2]
		if words := strings.Fields(found[2]); found[1] == "COPY" {
			copied = append(copied, words[len(words)-1])
		}
	}
	var entry, arguments []string
	for kind, into := range map[string]*[]string{"ENTRYPOINT": &entry, "CMD": &arguments} {
		if err := json.Unmarshal([]byte(last[kind]), into); err != nil {
			t.Errorf("%s %s: %v", kind, last[kind], err)
		}
	}
	if len(entry) != 1 || !slices.Contains(copied, entry[0]) {
		t.Errorf("the image starts %q, and has %q", entry, copied)
	}
	understood(t, "redlockd", append(arguments, "-version")...)
	if !slices.Contains(copied, filepath.Dir(client.DefaultSocket)) {
		t.Errorf("the image has no directory for the socket: %q", copied)
	}
}

// understood checks that a program accepts its flags. The program ends at once if it does.
func understood(t *testing.T, program string, args ...string) {
	t.Helper()
	if output, err := combined(exec.Command(filepath.Join(binaries, program), args...)); err != nil {
		t.Errorf("%s %q: %v\n%s", program, args, err, output)
	}
}

// pod has the fields of kubernetes.yaml that the test reads.
type pod struct {
	InitContainers, Containers []podContainer
	Volumes                    []podVolume
}

type podVolume struct {
	Name     string
	EmptyDir struct{ SizeLimit string }
}

type podContainer struct {
	Name, RestartPolicy         string
	Args, Command               []string
	Env                         []struct{ Name, Value string }
	StartupProbe, LivenessProbe struct{ Exec struct{ Command []string } }
	VolumeMounts                []struct{ Name, MountPath string }
}

// TestKubernetes checks the example for Kubernetes: its config is valid, the flags are accepted,
// and both containers see the socket.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	config, p := readKubernetes(t)
	file := filepath.Join(t.TempDir(), "redlockd.hcl")
	writeFile(t, file, config)
	understood(t, "redlockd", "validate", "-config", file)

	if len(p.InitContainers) != 1 || len(p.Containers) != 1 || p.InitContainers[0].RestartPolicy != "Always" {
		t.Fatalf("got %+v, want a sidecar and a container", p)
	}
	sidecar, worker := p.InitContainers[0], p.Containers[0]
	understood(t, "redlockd", append(sidecar.Args, "-version")...)
	if at := slices.Index(sidecar.Args, "-config"); at < 0 || !sidecar.sees(filepath.Dir(sidecar.Args[at+1]), "config") {
		t.Errorf("the sidecar does not see its config: %+v", sidecar)
	}
	for _, probe := range [][]string{sidecar.StartupProbe.Exec.Command, sidecar.LivenessProbe.Exec.Command} {
		if len(probe) < 2 || probe[0] != "/usr/bin/redlock" {
			t.Fatalf("got the probe %q, want /usr/bin/redlock", probe)
		}
		understood(t, "redlock", append(probe[1:], "--help")...)
	}
	understood(t, "redlock", append([]string{"run", "--help"}, worker.Command[2:]...)...)
	dir := filepath.Dir(client.DefaultSocket)
	if !sidecar.sees(dir, "socket") || !worker.sees(dir, "socket") {
		t.Errorf("not both see %s:\n%+v\n%+v", dir, sidecar, worker)
	}
	if len(worker.Env) != 1 || worker.Env[0].Name != "REDLOCK_SOCKET" || worker.Env[0].Value != client.DefaultSocket {
		t.Errorf("the worker looks for the socket at %+v", worker.Env)
	}
	for _, name := range []string{"socket", "config"} {
		if !slices.ContainsFunc(p.Volumes, func(v podVolume) bool { return v.Name == name }) {
			t.Errorf("the pod has no volume %s: %+v", name, p.Volumes)
		}
	}
	p.hasRoom(t)
}

// TestKustomization checks that the base for kustomize has all objects for Kubernetes.
func TestKustomization(t *testing.T) {
	t.Parallel()
	var bases []struct{ Resources []string }
	readYAML(t, filepath.Join("..", "container", "kustomization.yaml"), &bases)
	files, err := filepath.Glob(filepath.Join("..", "container", "kubernetes*.yaml"))
	if err != nil || len(bases) != 1 || len(files) == 0 {
		t.Fatalf("got %+v, %q and %v", bases, files, err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if got := slices.Sorted(slices.Values(bases[0].Resources)); !slices.Equal(got, files) {
		t.Errorf("resources: got %q, want %q", got, files)
	}
}

// hasRoom checks the volume's size: the state file is beside the socket, of 2 MiB, and briefly there are
// two.
func (p pod) hasRoom(t *testing.T) {
	t.Helper()
	limit, _ := strings.CutSuffix(p.Volumes[0].EmptyDir.SizeLimit, "Mi")
	if mib, err := strconv.Atoi(limit); err != nil || mib < 16 {
		t.Errorf("the socket's volume has room for %q, want 16Mi at least", p.Volumes[0].EmptyDir.SizeLimit)
	}
}

func (c podContainer) sees(dir, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m struct{ Name, MountPath string }) bool { return m.Name == volume && m.MountPath == dir })
}

// readKubernetes returns the config and the pod of kubernetes.yaml.
func readKubernetes(t *testing.T) (config string, p pod) {
	t.Helper()
	var objects []struct {
		Kind string
		Data map[string]string
		Spec struct{ Template struct{ Spec pod } }
	}
	readYAML(t, filepath.Join("..", "container", "kubernetes.yaml"), &objects)
	if len(objects) != 2 || objects[0].Kind != "ConfigMap" || objects[1].Kind != "Deployment" {
		t.Fatalf("got %+v, want a ConfigMap and a Deployment", objects)
	}
	return objects[0].Data["redlockd.hcl"], objects[1].Spec.Template.Spec
}
