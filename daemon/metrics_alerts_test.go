package daemon

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

const alertRules = "../packaging/alerts.yml"

// ofPrometheus has the metrics that Prometheus makes itself.
var ofPrometheus = map[string]bool{"up": true}

// ofTLS is a metric of nodes with TLS only. End-to-end tests have such nodes.
const ofTLS = "redlockd_node_certificate_end_timestamp_seconds"

var (
	alertExpr = regexp.MustCompile(`(?m)^ *expr: (.*)$`)
	// selector matches a metric in an expression, with its labels if it has any. Words without an
	// underscore, except up, belong to PromQL, and a word before ( is a function.
	selector = regexp.MustCompile(`\b(up|[a-z]+_[a-z_]*)\b(?:\{([^}]*)\})?([^a-z_(]|$)`)
	label    = regexp.MustCompile(`\w+="[^"]*"`)
)

// All metrics and label values in the alert rules exist. Otherwise a rule would never fire.
func TestMetricsOfAlertsExist(t *testing.T) {
	existing := startWithMetrics(t, 1).scrape()
	exprs := alertExpr.FindAllStringSubmatch(readTestFile(t, alertRules), -1)
	if len(exprs) < 10 {
		t.Fatalf("got %d rules, want more: does alertExpr match them?", len(exprs))
	}
	for _, expr := range exprs {
		checkExpr(t, existing, expr[1])
	}
}

// checkExpr fails the test if a metric in an expression does not exist, or does not have its labels.
func checkExpr(t *testing.T, existing scraped, expr string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(expr, -1)
	for _, s := range found {
		if ofPrometheus[s[1]] || s[1] == ofTLS {
			continue
		}
		if !existing.has(s[1], s[2]) {
			t.Errorf("%s{%s}: there is no such metric; in: %s", s[1], s[2], expr)
		}
	}
	if len(found) == 0 {
		t.Errorf("found no metric in: %s", expr)
	}
}

// has reports whether there is a series of that name with all of these labels.
func (s scraped) has(name, labels string) bool {
	for series := range s {
		if got, rest, _ := strings.Cut(series, "{"); got == name && hasLabels(rest, labels) {
			return true
		}
	}
	return false
}

func hasLabels(series, labels string) bool {
	for _, l := range label.FindAllString(labels, -1) {
		if !strings.Contains(series, l) {
			return false
		}
	}
	return true
}

// TestMetricNamesFollowConventions checks the names of metrics against the conventions of Prometheus.
func TestMetricNamesFollowConventions(t *testing.T) {
	problems, err := promlint.New(startWithMetrics(t, 1).metrics()).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
