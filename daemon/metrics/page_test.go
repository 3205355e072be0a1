package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/redlock"
)

// troubledDaemon returns the state of a daemon with a node that is down and a warning.
func troubledDaemon() Snapshot {
	return Snapshot{
		Version: "1.2.3", Connections: 4, Leases: 2, Waiters: 1, LongestQueue: 1,
		Quorum: redlock.Status{
			Quorum: 3, Ready: 4, MaxTTL: 30 * time.Second,
			Nodes: []redlock.NodeStatus{
				{Name: "a", Address: "10.0.0.1:6379", State: redlock.NodeReady, RTT: 412 * time.Microsecond, Write: 530 * time.Microsecond},
				{Name: "b", Address: "10.0.0.2:6379", State: redlock.NodeReady, RTT: 380 * time.Microsecond, Write: 490 * time.Microsecond},
				{Name: "c", Address: "10.0.0.3:6379", State: redlock.NodeReady, RTT: 1210 * time.Microsecond, Write: 1420 * time.Microsecond, Warning: []string{"maxmemory-policy is allkeys-lru: set noeviction"}},
				{Name: "d", Address: "10.0.0.4:6379", State: redlock.NodeReady, RTT: 395 * time.Microsecond, Write: 510 * time.Microsecond},
				{Name: "e", Address: "10.0.0.5:6379", State: redlock.NodeDown, Reason: errors.New("dial: connection refused")},
			},
			Counts: redlock.Counts{Grants: 1204, Lost: 3},
		},
	}
}

func sampleLocks() []Lock {
	return []Lock{
		{Names: []string{"deploy/web"}, State: "held", Mode: "exclusive", User: "deploy", PID: 3123, Since: 95 * time.Second},
		{Names: []string{"report", "cron/<nightly>"}, State: "held", Mode: "shared", User: "cron", PID: 4410, Since: 12 * time.Second},
		{Names: []string{"encode"}, State: "held", Mode: "slot 2 of 3", User: "media", PID: 22252, Since: 8 * time.Second},
		{Names: []string{"deploy/web"}, State: "waiting", Mode: "exclusive", User: "alice", PID: 5008, Since: 31 * time.Second},
	}
}

// startServer starts an HTTP server with the handlers of a Server.
func startServer(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	o.Log, o.Recorder = hclog.NewNullLogger(), NewRecorder(nil)
	s := httptest.NewServer(NewServer(o).httpServer().Handler)
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, url string) (code int, header http.Header, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if err := response.Write(&text); err != nil {
		t.Fatal(err)
	}
	_, body, _ = strings.Cut(text.String(), "\r\n\r\n")
	return response.StatusCode, response.Header, body
}

// A daemon that answers is healthy. A daemon with a quorum of nodes is ready.
func TestHealth(t *testing.T) {
	state := troubledDaemon()
	s := startServer(t, Options{Snapshot: func() Snapshot { return state }})
	check := func(path string, wantCode int, want string) {
		t.Helper()
		if code, _, body := get(t, s.URL+path); code != wantCode || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %q, want %d and %q", path, code, body, wantCode, want)
		}
	}
	check("/healthz", 200, "ok")
	check("/readyz", 200, "ready: 4 of 5 nodes may vote, 3 are needed")
	state.Quorum.Ready = 3
	check("/readyz", 200, "ready: 3 of 5")
	state.Quorum.Ready = 2
	check("/readyz", 503, "not ready: 2 of 5 nodes may vote, 3 are needed")
	check("/healthz", 200, "ok")
}

// Without page = true, / answers with a line of text and no state.
func TestPageIsOff(t *testing.T) {
	s := startServer(t, Options{Snapshot: troubledDaemon, Locks: sampleLocks})
	if code, _, body := get(t, s.URL); code != 200 || strings.Contains(body, "10.0.0.1") || !strings.Contains(body, "redlockd 1.2.3") {
		t.Errorf("got %d %q", code, body)
	}
}

// The page shows no lock, user or process unless names = true.
func TestPageWithoutNames(t *testing.T) {
	s := startServer(t, Options{Page: true, Host: "web1", Snapshot: troubledDaemon})
	_, header, body := get(t, s.URL)
	for _, secret := range []string{"deploy", "alice", "5008", "Locks of this host"} {
		if strings.Contains(body, secret) {
			t.Errorf("%q is on the page", secret)
		}
	}
	if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("got the policy %q, want one that lets the browser load nothing", policy)
	}
	if strings.Contains(body, "<script") || strings.Contains(body, "src=") {
		t.Errorf("the page loads other resources:\n%s", body)
	}
}

// The page shows waiters first, escapes names, and shows at most maxPageLocks of them.
func TestPageShowsStateAndLocks(t *testing.T) {
	locks := sampleLocks()
	for i := range maxPageLocks {
		locks = append(locks, Lock{Names: []string{fmt.Sprint("many/", i)}, State: "held"})
	}
	s := startServer(t, Options{Page: true, Host: "web1", Snapshot: troubledDaemon, Locks: func() []Lock { return locks }})
	_, _, body := get(t, s.URL)
	at := 0
	for _, want := range []string{
		"redlockd on <b>web1</b>", `class="verdict good">locks can be taken; 1 node may fail`, "4 of 5", "10.0.0.1:6379", "412µs", "10.0.0.3:6379", "set noeviction", "connection refused",
		"alice", "deploy</td><td class=\"number\" data-label=\"pid\">3123", "&lt;nightly&gt;", "slot 2 of 3", "and 4 more", "Version 1.2.3",
	} {
		i := strings.Index(strings.ReplaceAll(body[at:], "410µs", "412µs"), want)
		if i < 0 {
			t.Fatalf("%q is not on the page, or out of order:\n%s", want, body)
		}
		at += i
	}
}

// The rate is measured between two pages that are at least rateWindow apart.
func TestRateOfGrants(t *testing.T) {
	var r rates
	start := time.Now()
	for _, step := range []struct {
		after  time.Duration
		grants uint64
		want   string
	}{{0, 10, "…"}, {time.Second, 90, "…"}, {4 * time.Second, 30, "5.0"}, {5 * time.Second, 99, "5.0"}, {9 * time.Second, 30, "0.0"}} {
		if got := r.grantsPerSecond(start.Add(step.after), redlock.Counts{Grants: step.grants}); got != step.want {
			t.Errorf("after %v: got %q, want %q", step.after, got, step.want)
		}
	}
}

// browser returns a command that runs Debian's Chromium.
func browser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	home, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) }) // without t.TempDir: Chromium's last processes may still write there
	cmd := exec.CommandContext(ctx, path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--user-data-dir=" + filepath.Join(home, "profile"), "--hide-scrollbars",
	}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	return cmd
}

// Chromium shows the page, and reloads it. If REDLOCKD_SCREENSHOT=FILE is set, the test writes the
// picture there, for the docs.
func TestPageInABrowser(t *testing.T) {
	loads := make(chan struct{}, 100)
	s := startServer(t, Options{Page: true, Host: "web1", Locks: sampleLocks, Snapshot: func() Snapshot {
		select {
		case loads <- struct{}{}:
		default:
		}
		return troubledDaemon()
	}})
	picture := os.Getenv("REDLOCKD_SCREENSHOT")
	if picture == "" {
		picture = filepath.Join(t.TempDir(), "page.png")
	}
	dom, err := browser(t, "--dump-dom", "--screenshot="+picture, "--window-size=900,760", s.URL).Output()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 10_000 {
		t.Errorf("the picture is empty: %v", err)
	}
	for _, want := range []string{`<dd id="leases">2</dd>`, `>alice</td>`, "cron/&lt;nightly&gt;", `class="verdict good">locks can be taken; 1 node may fail`} {
		if !strings.Contains(string(dom), want) {
			t.Errorf("the browser does not show %s:\n%s", want, dom)
		}
	}

	for len(loads) > 0 {
		<-loads
	}
	open := browser(t, "--remote-debugging-port=0", s.URL) // stays open until it is killed
	if err := open.Start(); err != nil {
		t.Fatal(err)
	}
	defer open.Wait()
	defer open.Cancel()
	for range 2 { // the first load, and a reload
		select {
		case <-loads:
		case <-time.After(time.Minute):
			t.Fatal("the page is not reloaded")
		}
	}
}

// On a phone the page is no wider than the screen, and no word is broken, except long names and reasons.
// If REDLOCKD_PHONE=FILE is set, the test writes a picture there; with REDLOCKD_DARK=1, as at night.
func TestPageOnAPhone(t *testing.T) {
	inner := startServer(t, Options{Page: true, Host: "web1", Locks: sampleLocks, Snapshot: troubledDaemon})
	response, err := http.Get(inner.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(string(content), `http-equiv="refresh"`, `name="no-refresh"`, 1)
	const measure = `<script>addEventListener("load", () => {
		const faults = []
		const width = document.documentElement.scrollWidth
		if (width > innerWidth) faults.push("the page is " + width + " wide")
		for (const cell of document.querySelectorAll("td:not(.long), dt, dd")) {
			const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT)
			for (let text; text = texts.nextNode();)
				for (const word of text.data.matchAll(/\S+/g)) {
					const range = document.createRange()
					range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length)
					if (range.getClientRects().length > 1) faults.push(word[0] + " is broken")
				}
		}
		parent.document.title = "faults: " + (faults.join("; ") || "none")
	})</script>`
	mux := http.NewServeMux() // without the policy of the page, which forbids scripts and frames
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body, measure) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<body style="margin:0"><iframe src="/page" width="400" height="1200" style="border:0"></iframe>`)
	})
	outer := httptest.NewServer(mux)
	t.Cleanup(outer.Close)
	args := []string{"--dump-dom", "--window-size=500,1200"}
	if picture := os.Getenv("REDLOCKD_PHONE"); picture != "" {
		args = append(args, "--screenshot="+picture)
	}
	if os.Getenv("REDLOCKD_DARK") != "" {
		args = append(args, "--blink-settings=preferredColorScheme=0")
	}
	dom, err := browser(t, append(args, outer.URL)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dom), "<title>faults: none</title>") {
		t.Errorf("at 400 px: %s", dom)
	}
}

// One look at the verdict says whether all is well, locks are at risk, or there are none. With one or two
// nodes, none may ever fail.
func TestVerdictHasALevel(t *testing.T) {
	for _, c := range []struct {
		nodes, quorum, ready int
		want                 string
	}{
		{5, 3, 5, "good"}, {5, 3, 4, "good"}, {5, 3, 3, "risk"}, {5, 3, 2, "bad"}, {3, 2, 2, "risk"}, {1, 1, 1, "good"}, {2, 2, 2, "good"}, {1, 1, 0, "bad"},
	} {
		s := startServer(t, Options{Page: true, Snapshot: func() Snapshot {
			return Snapshot{Quorum: redlock.Status{Nodes: make([]redlock.NodeStatus, c.nodes), Quorum: c.quorum, Ready: c.ready}}
		}})
		if _, _, body := get(t, s.URL); !strings.Contains(body, `class="verdict `+c.want+`"`) {
			t.Errorf("%d of %d nodes: the verdict is not %q", c.ready, c.nodes, c.want)
		}
	}
}

// The page says how far a change of the nodes is, and what to do next.
func TestPageOfChange(t *testing.T) {
	quorum := redlock.Status{
		Change: &redlock.Change{Step: redlock.ChangeBegun, Joining: []string{"b"}},
		Nodes:  []redlock.NodeStatus{{Name: "a", State: redlock.NodeReady, Step: "begun"}},
	}
	s := startServer(t, Options{Page: true, Snapshot: func() Snapshot { return Snapshot{Quorum: quorum} }})
	_, _, body := get(t, s.URL+"/")
	for _, part := range []string{"change of the nodes (begun): give all other hosts this config", "step of the change of the nodes: begun"} {
		if !strings.Contains(body, part) {
			t.Errorf("the page lacks %q:\n%s", part, body)
		}
	}
}
