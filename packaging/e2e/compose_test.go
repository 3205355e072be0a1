//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
)

// readYAML parses all documents of a YAML file with Python.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	if _, err := combined(exec.Command("python3", "-c", "import yaml")); err != nil {
		t.Skip("YAML cannot be read (Debian: apt-get install python3-yaml)")
	}
	const script = `import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))`
	output, err := combined(exec.Command("python3", "-c", script, file))
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := json.Unmarshal(output, into); err != nil {
		t.Fatal(err)
	}
}

// compose has the fields of compose.yaml that the test reads.
type compose struct {
	Services map[string]composeService
	Volumes  map[string]any
	Configs  map[string]struct{ Content string }
}

type composeService struct {
	Image, Pid          string
	Build               struct{ Context, Dockerfile string }
	Command, Entrypoint []string
	Configs             []struct{ Source, Target string }
	Environment         map[string]string
	Volumes, Ports      []string
	Healthcheck         struct{ Test []string }
	DependsOn           map[string]struct{ Condition string } `json:"depends_on"`
}

var nodeAddress = regexp.MustCompile(`address = "(redis-\w):(\d+)"`)

// TestCompose checks the example for Compose: its config is valid and names its nodes, its programs
// accept their flags and commands, and each service waits until the services that it needs are
// healthy.
func TestCompose(t *testing.T) {
	t.Parallel()
	var documents []compose
	folder := filepath.Join("..", "container")
	readYAML(t, filepath.Join(folder, "compose.yaml"), &documents)
	c := documents[0]
	daemon, worker := c.Services["redlockd"], c.Services["client"]

	file := filepath.Join(t.TempDir(), "redlockd.hcl")
	writeFile(t, file, c.Configs["redlockd"].Content)
	understood(t, "redlockd", "validate", "-config", file)
	nodes := nodeAddress.FindAllStringSubmatch(c.Configs["redlockd"].Content, -1)
	if len(nodes) != 5 {
		t.Errorf("got %d nodes in the config, want 5", len(nodes))
	}
	for _, node := range nodes {
		service, there := c.Services[node[1]]
		if !there || node[2] != "6379" || daemon.DependsOn[node[1]].Condition != "service_healthy" {
			t.Errorf("%s: not a service that redlockd waits for", node[0])
		}
		volume := node[1] + ":/data"
		if _, known := c.Volumes[node[1]]; !known || !slices.Equal(service.Volumes, []string{volume}) {
			t.Errorf("%s: got the volumes %q, want %s", node[1], service.Volumes, volume)
		}
		if !slices.Equal(service.Healthcheck.Test, []string{"CMD", "redis-cli", "ping"}) || !strings.HasSuffix(service.Image, "/redis:8.0") {
			t.Errorf("%s: got %+v", node[1], service)
		}
	}

	understood(t, "redlockd", append(daemon.Command, "-version")...)
	if len(daemon.Configs) != 1 || daemon.Configs[0].Source != "redlockd" || !slices.Contains(daemon.Command, daemon.Configs[0].Target) {
		t.Errorf("redlockd does not read its config: %+v", daemon)
	}
	if !strings.Contains(c.Configs["redlockd"].Content, `"0.0.0.0:9852"`) || !slices.Equal(daemon.Ports, []string{"127.0.0.1:9852:9852"}) {
		t.Errorf("got the ports %q, and another address in the config", daemon.Ports)
	}
	if _, err := os.Stat(filepath.Join(folder, daemon.Build.Context, daemon.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if check := daemon.Healthcheck.Test; len(check) < 3 || check[0] != "CMD" || check[1] != "/usr/bin/redlock" {
		t.Errorf("got the health check %q", check)
	} else {
		understood(t, "redlock", append(check[2:], "--help")...)
	}

	socket := "socket:" + filepath.Dir(client.DefaultSocket)
	for name, s := range map[string]composeService{"redlockd": daemon, "client": worker} {
		if !slices.Contains(s.Volumes, socket) || s.Image != daemon.Image {
			t.Errorf("%s: got %q of %s, want %s", name, s.Volumes, s.Image, socket)
		}
	}
	if worker.Pid != "service:redlockd" || worker.Environment["REDLOCK_SOCKET"] != client.DefaultSocket || worker.DependsOn["redlockd"].Condition != "service_healthy" {
		t.Errorf("got %+v", worker)
	}
	if !slices.Equal(worker.Entrypoint, []string{"/usr/bin/redlock"}) || worker.Command[0] != "run" {
		t.Fatalf("the client starts %q %q", worker.Entrypoint, worker.Command)
	}
	understood(t, "redlock", append([]string{"run", "--help"}, worker.Command[1:]...)...)
	understood(t, "redlock", append([]string{"who", "--help"}, worker.Command[slices.Index(worker.Command, "who")+1:]...)...)

	redisUnderstands(t, c.Services["redis-a"].Command)
}

// manifest has the fields of kubernetes-redis.yaml that the test reads.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Selector    map[string]any
		Ports       []struct{ Port int }
		ServiceName string
		Replicas    int
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Args           []string
					Ports          []struct{ ContainerPort int }
					ReadinessProbe struct{ Exec struct{ Command []string } }
					VolumeMounts   []struct{ Name, MountPath string }
				}
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } }
	}
}

// TestKubernetesRedis checks the Redis of the example for Kubernetes: each node of the config is a
// service for one pod of the StatefulSet, with a volume.
func TestKubernetesRedis(t *testing.T) {
	t.Parallel()
	var objects []manifest
	readYAML(t, filepath.Join("..", "container", "kubernetes-redis.yaml"), &objects)
	byName := map[string]manifest{}
	for _, o := range objects {
		byName[o.Kind+" "+o.Metadata.Name] = o
	}
	set := byName["StatefulSet redis"]
	if len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("got %+v, want a StatefulSet redis", objects)
	}
	redis := set.Spec.Template.Spec.Containers[0]
	config, _ := readKubernetes(t)
	pods := map[any]bool{}
	for _, node := range nodeAddress.FindAllStringSubmatch(config, -1) {
		service := byName["Service "+node[1]]
		pods[service.Spec.Selector["statefulset.kubernetes.io/pod-name"]] = true
		if len(service.Spec.Ports) != 1 || fmt.Sprint(service.Spec.Ports[0].Port) != node[2] || service.Spec.Ports[0].Port != redis.Ports[0].ContainerPort {
			t.Errorf("%s: got %+v, want a service with that port", node[0], service)
		}
	}
	for i := range set.Spec.Replicas {
		if !pods[fmt.Sprint("redis-", i)] {
			t.Errorf("no service is for redis-%d: %v", i, pods)
		}
	}
	if set.Spec.Replicas != 5 || len(pods) != 5 {
		t.Errorf("got %d pods and %d services, want 5", set.Spec.Replicas, len(pods))
	}
	if byName["Service "+set.Spec.ServiceName].Spec.Selector["app"] != set.Spec.Template.Metadata.Labels["app"] || byName["PodDisruptionBudget redis"].Kind == "" {
		t.Error("the StatefulSet has no service, or no disruption budget")
	}
	if len(redis.VolumeMounts) != 1 || redis.VolumeMounts[0].MountPath != "/data" || redis.VolumeMounts[0].Name != set.Spec.VolumeClaimTemplates[0].Metadata.Name {
		t.Errorf("got the volumes %+v", redis.VolumeMounts)
	}
	if !slices.Equal(redis.ReadinessProbe.Exec.Command, []string{"redis-cli", "ping"}) {
		t.Errorf("got the probe %q", redis.ReadinessProbe.Exec.Command)
	}
	redisUnderstands(t, redis.Args)
}

// redisUnderstands starts a redis-server with a container's arguments, on a Unix socket.
func redisUnderstands(t *testing.T, args []string) {
	t.Helper()
	if len(args) == 0 || args[0] != "redis-server" {
		t.Fatalf("got %q, want redis-server", args)
	}
	dir, err := os.MkdirTemp("", "rlc") // short, because it contains the socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	server := exec.Command("redis-server", append(args[1:], "--port", "0", "--unixsocket", socket, "--dir", dir)...)
	var output strings.Builder
	server.Stdout, server.Stderr, server.WaitDelay = &output, &output, patience
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() { server.Process.Kill(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; {
		text, _ := printed(exec.Command("redis-cli", "-s", socket, "CONFIG", "GET", "append*"))
		if strings.Contains(string(text), "always") && strings.Contains(string(text), "yes") {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("redis-server %q: %v\n%s", args, err, output.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("redis-server %q does not answer as it should: %s", args, text)
		}
	}
}
