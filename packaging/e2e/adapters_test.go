//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// adapters are the examples for interfaces of frameworks, and the tests that run them.
var adapters = map[string]string{
	"RedlockdJob.java":          "TestJavaAdapters",
	"RedlockdLockProvider.java": "TestJavaAdapters",
	"agenda.mjs":                "TestNodeAdapters",
	"apscheduler_job.py":        "TestPythonAdapters",
	"bullmq.mjs":                "TestNodeAdapters",
	"celery_task.py":            "TestPythonAdapters",
	"django_command.py":         "TestPythonAdapters",
	"go/asynq.go":               "TestGoAdapters",
	"go/cron.go":                "TestGoAdapters",
	"go/gocron_elector.go":      "TestGoAdapters",
	"go/gocron_locker.go":       "TestGoAdapters",
	"infrastructure.sh":         "TestInfrastructureAdapter",
	"sidekiq.rb":                "TestRubyPackage",
}

// Each adapter has a test, 40 lines at most, and a link on the page that introduces it.
func TestAdaptersAreSmallAndRun(t *testing.T) {
	page := readFile(t, pagePath("CLIENTS.md"))
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, test := range tests {
		all.WriteString(readFile(t, test))
	}
	found := 0
	err = filepath.WalkDir(adapterDir, func(path string, entry os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, adapterDir+"/")
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "go/go.") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		found++
		if test := adapters[name]; test == "" || !strings.Contains(all.String(), "func "+test+"(") {
			t.Errorf("%s is run by no test", name)
		}
		if lines := strings.Count(readFile(t, path), "\n"); lines > 40 {
			t.Errorf("%s has %d lines, want 40 at most", name, lines)
		}
		if !strings.Contains(page, "(../examples/adapters/"+name+")") {
			t.Errorf("CLIENTS.md has no link to %s", name)
		}
		return nil
	})
	if err != nil || found != len(adapters) {
		t.Errorf("got %d adapters (%v), want %d", found, err, len(adapters))
	}
}

// The adapters for Go, with gocron, cron and asynq themselves. They are a module of their own.
func TestGoAdapters(t *testing.T) {
	t.Parallel()
	module := filepath.Join(adapterDir, "go")
	download := goCommand("mod", "download")
	download.Dir = module
	if output, err := combined(download); err != nil {
		t.Skipf("the modules of the frameworks are needed, which takes the Go module proxy: %v\n%s", err, output)
	}
	_, h, _ := five(t)
	tests := goCommand("test", "-count=1", "-timeout=3m", ".")
	tests.Dir = module
	passes(t, tests, "REDLOCK_SOCKET="+h.socket)
}

// The adapters for Node, with stand-ins for the frameworks.
func TestNodeAdapters(t *testing.T) {
	t.Parallel()
	needNode(t)
	project := nodeProject(t)
	for _, file := range []string{adapter(t, "bullmq.mjs"), adapter(t, "agenda.mjs"), "testdata/adapters.mjs"} {
		writeFile(t, filepath.Join(project, filepath.Base(file)), readFile(t, file))
	}
	_, h, _ := five(t)
	tests := exec.Command("node", "--test", "adapters.mjs")
	tests.Dir = project
	passes(t, tests, "REDLOCK_SOCKET="+h.socket)
}

// The adapters for Java, with stand-ins for the frameworks.
func TestJavaAdapters(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("javac is needed: apt-get install default-jdk-headless")
	}
	dir := t.TempDir()
	sources := []string{"-d", dir, "../examples/locked.java", "testdata/Adapters.java", adapter(t, "RedlockdJob.java"), adapter(t, "RedlockdLockProvider.java")}
	for name, text := range map[string]string{
		"net.javacrumbs.shedlock.core.LockProvider":      "public interface LockProvider { java.util.Optional<SimpleLock> lock(LockConfiguration wanted); }",
		"net.javacrumbs.shedlock.core.SimpleLock":        "public interface SimpleLock { void unlock(); }",
		"net.javacrumbs.shedlock.core.LockConfiguration": "public record LockConfiguration(String getName, java.time.Duration getLockAtMostFor, java.time.Duration getLockAtLeastFor) {}",
		"org.quartz.Job":                   "public interface Job { void execute(JobExecutionContext context) throws JobExecutionException; }",
		"org.quartz.JobDetail":             "public record JobDetail(Object getKey) {}",
		"org.quartz.JobExecutionContext":   "public interface JobExecutionContext { JobDetail getJobDetail(); }",
		"org.quartz.JobExecutionException": "public class JobExecutionException extends Exception { public JobExecutionException(Throwable cause) { super(cause); } }",
	} {
		dot := strings.LastIndex(name, ".")
		file := filepath.Join(dir, name[dot+1:]+".java")
		writeFile(t, file, "package "+name[:dot]+"; "+text)
		sources = append(sources, file)
	}
	if output, err := combined(exec.Command("javac", sources...)); err != nil {
		t.Fatalf("javac: %v\n%s", err, output)
	}
	_, h, _ := five(t)
	run := exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", dir, "Adapters")
	run.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket)
	if output, err := combined(run); err != nil || string(output) != "ok\n" {
		t.Errorf("%v\n%s", err, output)
	}
}

// terraform and ansible-playbook take the lock for changes, and not for other commands.
func TestInfrastructureAdapter(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	writeFile(t, real, "#!/bin/sh\necho \"${REDLOCK_NAME-no lock}: $*\"\n")
	if err := os.Chmod(real, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ program, args, as, want string }{
		{"terraform", "plan -out=p", "network", "no lock: plan -out=p\n"},
		{"terraform", "-chdir=x apply -auto-approve", "network", "terraform/network: -chdir=x apply -auto-approve\n"},
		{"terraform", "apply -help", "network", "no lock: apply -help\n"},
		{"tofu", "destroy", "", "tofu/" + filepath.Base(h.dir) + ": destroy\n"},
		{"ansible-playbook", "site.yml", "site", "ansible-playbook/site: site.yml\n"},
		{"ansible-playbook", "site.yml --check", "site", "no lock: site.yml --check\n"},
	} {
		program := filepath.Join(dir, c.program)
		if err := os.RemoveAll(program); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(adapter(t, "infrastructure.sh"), program); err != nil {
			t.Fatal(err)
		}
		run := exec.Command("sh", append([]string{program}, strings.Fields(c.args)...)...)
		run.Dir = h.dir
		run.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "REDLOCK_SOCKET="+h.socket, "REDLOCK_REAL="+real, "REDLOCK_AS="+c.as)
		if output, err := printed(run); err != nil || string(output) != c.want {
			t.Errorf("%s %s prints %q, %v; want %q", c.program, c.args, output, err, c.want)
		}
	}
}

// The adapters for frameworks of Python, with stand-ins for the frameworks.
func TestPythonAdapters(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(debianPython); err != nil {
		t.Skipf("python3 is needed: apt-get install python3: %v", err)
	}
	h, _, _ := dev(t)
	passes(t, exec.Command(debianPython, "-W", "error", "testdata/adapters.py", adapterDir),
		pythonPath(t), "REDLOCK_SOCKET="+h.socket, "PYTHONDONTWRITEBYTECODE=1")
}

// adapter returns the path of an example.
func adapter(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(adapterDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
