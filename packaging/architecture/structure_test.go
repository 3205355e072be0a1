package architecture

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// allowed lists what each package may import: packages of this module by their path in it, and
// other modules by a short name. Other imports are not allowed, and a package that is not listed
// may not exist. The standard library is always allowed.
var allowed = map[string]string{
	"client":                           "ipc redlock/boottime x/sys",
	"cmd/redlock":                      "client cmd/redlock/internal/describe cmd/redlock/internal/doctor cmd/redlock/internal/exit cmd/redlock/internal/flags cmd/redlock/internal/holder cmd/redlock/internal/job cmd/redlock/internal/lockname cmd/redlock/internal/output cmd/redlock/internal/socket cmd/redlock/internal/term cmd/redlock/internal/top cobra ipc",
	"cmd/redlock/internal/cmdtest":     "client cmd/redlock/internal/exit daemon daemon/config hclog ipc redlock/boottime x/sys",
	"cmd/redlock/internal/describe":    "client cmd/redlock/internal/lockname cmd/redlock/internal/output",
	"cmd/redlock/internal/doctor":      "client cmd/redlock/internal/describe cmd/redlock/internal/lockname cmd/redlock/internal/output cmd/redlock/internal/socket x/sys",
	"cmd/redlock/internal/exit":        "client x/sys",
	"cmd/redlock/internal/flags":       "cmd/redlock/internal/exit cobra",
	"cmd/redlock/internal/holder":      "client cmd/redlock/internal/exit cmd/redlock/internal/flags cmd/redlock/internal/lockname cmd/redlock/internal/socket cobra",
	"cmd/redlock/internal/job":         "client cmd/redlock/internal/describe cmd/redlock/internal/exit cmd/redlock/internal/lockname cmd/redlock/internal/socket cmd/redlock/internal/term redlock/boottime x/sys",
	"cmd/redlock/internal/lockname":    "client cmd/redlock/internal/exit x/text",
	"cmd/redlock/internal/output":      "cmd/redlock/internal/exit",
	"cmd/redlock/internal/socket":      "client cmd/redlock/internal/exit cmd/redlock/internal/flags cmd/redlock/internal/term ipc",
	"cmd/redlock/internal/term":        "x/sys",
	"cmd/redlock/internal/top":         "client cmd/redlock/internal/describe cmd/redlock/internal/output cmd/redlock/internal/socket cmd/redlock/internal/term",
	"cmd/redlockd":                     "daemon daemon/access daemon/config daemon/logging hclog systemd",
	"daemon":                           "daemon/config daemon/devnodes daemon/locktable daemon/logging daemon/metrics daemon/session daemon/state daemon/state/statefile hclog ipc/server redlock systemd",
	"daemon/access":                    "daemon/config daemon/locktable ipc",
	"daemon/config":                    "cty daemon/logging hcl hclog ipc redlock",
	"daemon/daemontest":                "daemon/config hclog redlock/redlocktest",
	"daemon/devnodes":                  "daemon/config miniredis redlock x/sys",
	"daemon/locktable":                 "redlock",
	"daemon/logging":                   "hclog",
	"daemon/metrics":                   "hclog ipc prometheus redlock",
	"daemon/process":                   "x/sys",
	"daemon/session":                   "daemon/access daemon/config daemon/locktable daemon/logging daemon/metrics daemon/process daemon/state daemon/timers hclog ipc ipc/server redlock systemd x/sys",
	"daemon/state":                     "daemon/locktable daemon/state/statefile daemon/timers hclog ipc redlock systemd",
	"daemon/state/statefile":           "x/sys",
	"daemon/timers":                    "",
	"ipc":                              "",
	"ipc/server":                       "ipc x/sys",
	"packaging/architecture":           "",
	"packaging/clients":                "",
	"packaging/conformance":            "",
	"packaging/e2e":                    "",
	"packaging/man":                    "daemon/session",
	"packaging/model":                  "",
	"packaging/sbom":                   "",
	"redlock":                          "redlock/boottime redlock/internal/admission redlock/internal/attempts redlock/internal/ballot redlock/internal/node redlock/internal/quorum redlock/internal/redis redlock/internal/script",
	"redlock/boottime":                 "x/sys",
	"redlock/internal/admission":       "redlock/internal/quorum",
	"redlock/internal/attempts":        "",
	"redlock/internal/ballot":          "redlock/internal/node redlock/internal/quorum redlock/internal/redis redlock/internal/script",
	"redlock/internal/node":            "redlock/internal/admission redlock/internal/quorum redlock/internal/redis redlock/internal/script",
	"redlock/internal/quorum":          "",
	"redlock/internal/redis":           "rueidis",
	"redlock/internal/redis/redistest": "",
	"redlock/internal/script":          "redlock/internal/admission redlock/internal/redis",
	"redlock/redlocktest":              "redlock redlock/internal/redis redlock/internal/script redlock/redlocktest/simredis",
	"redlock/redlocktest/effort":       "",
	"redlock/redlocktest/planted":      "",
	"redlock/redlocktest/simredis":     "gopher-lua redlock redlock/internal/script",
	"redlock/redlocktest/simulation":   "redlock redlock/internal/redis redlock/redlocktest redlock/redlocktest/simredis",
	"systemd":                          "go-systemd x/sys",
}

// modules are the other modules, by their names in allowed.
var modules = map[string]string{
	"rueidis":    "github.com/redis/rueidis",
	"miniredis":  "github.com/alicebob/miniredis/v2",
	"gopher-lua": "github.com/yuin/gopher-lua",
	"hcl":        "github.com/hashicorp/hcl/v2",
	"cty":        "github.com/zclconf/go-cty",
	"hclog":      "github.com/hashicorp/go-hclog",
	"prometheus": "github.com/prometheus/client_golang",
	"go-systemd": "github.com/coreos/go-systemd/v22",
	"cobra":      "github.com/spf13/cobra",
	"pflag":      "github.com/spf13/pflag",
	"x/sys":      "golang.org/x/sys",
	"x/text":     "golang.org/x/text",
}

func TestImports(t *testing.T) {
	for path, p := range tree(t) {
		want, known := allowed[path]
		if !known {
			t.Errorf("package %s is not in the table of this test", path)
			continue
		}
		for _, imported := range p.Imports {
			if name := shortName(imported); name != "" && !slices.Contains(strings.Fields(want), name) {
				t.Errorf("package %s imports %s: not allowed", path, imported)
			}
		}
		for _, name := range strings.Fields(want) {
			if !slices.ContainsFunc(p.Imports, func(imported string) bool { return shortName(imported) == name }) {
				t.Errorf("package %s does not import %s: remove it from the table", path, name)
			}
		}
	}
}

// shortName returns the name of an import in allowed, or an empty text for the standard library.
func shortName(imported string) string {
	if inner, ok := RelativePath(imported); ok {
		return inner
	}
	for name, module := range modules {
		if imported == module || strings.HasPrefix(imported, module+"/") {
			return name
		}
	}
	if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
		return imported
	}
	return ""
}

// Other people's programs import package client. With it comes only x/sys.
func TestClientBringsNothing(t *testing.T) {
	all := load(t)
	for _, dep := range all[module+"/client"].Deps {
		first, _, _ := strings.Cut(dep, "/")
		inner, isOurs := RelativePath(dep)
		if isOurs && (inner == "ipc" || inner == "redlock/boottime") || strings.HasPrefix(dep, "golang.org/x/sys/") || !strings.Contains(first, ".") {
			continue
		}
		t.Errorf("package client depends on %s", dep)
	}
}

var loaded map[string]*Package

// load lists every package of this module and all their imports, once.
func load(t *testing.T) map[string]*Package {
	t.Helper()
	if loaded == nil {
		all, err := Load("../..", "./...")
		if err != nil {
			t.Fatal(err)
		}
		loaded = all
	}
	return loaded
}

// tree returns the packages of this module, by their paths in it.
func tree(t *testing.T) map[string]*Package {
	t.Helper()
	found := map[string]*Package{}
	for path, p := range maps.All(load(t)) {
		if inner, ok := RelativePath(path); ok && len(p.Files) > 0 {
			found[inner] = p
		}
	}
	return found
}
