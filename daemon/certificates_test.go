package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// until returns a certificate that expires so long after noon.
func until(d time.Duration) *x509.Certificate { return &x509.Certificate{NotAfter: noon.Add(d)} }

// A chain is valid until its first certificate expires. The chain that is valid longest counts, and
// the client certificate as well.
func TestFirstToEnd(t *testing.T) {
	const day = 24 * time.Hour
	long, short := []*x509.Certificate{until(9 * day), until(7 * day), until(8 * day)}, []*x509.Certificate{until(3 * day)}
	own := func(d time.Duration) []tls.Certificate { return []tls.Certificate{{Leaf: until(d)}} }
	for _, c := range []struct {
		name   string
		chains [][]*x509.Certificate
		own    []tls.Certificate
		want   time.Duration
		whose  string
	}{
		{"the first certificate of a chain", [][]*x509.Certificate{long}, nil, 7 * day, "its certificate"},
		{"the better chain", [][]*x509.Certificate{short, long}, nil, 7 * day, "its certificate"},
		{"the better chain, first", [][]*x509.Certificate{long, short}, nil, 7 * day, "its certificate"},
		{"the client certificate expires later", [][]*x509.Certificate{long}, own(8 * day), 7 * day, "its certificate"},
		{"the client certificate expires first", [][]*x509.Certificate{long}, own(6 * day), 6 * day, "cert_file client.pem"},
	} {
		got := firstToExpire(c.chains, c.own, "client.pem")
		if !got.expiry.Equal(noon.Add(c.want)) || !strings.Contains(got.subject, c.whose) {
			t.Errorf("%s: got %v of %s, want %v of %s", c.name, got.expiry, got.subject, noon.Add(c.want), c.whose)
		}
	}
}

func TestCertificateWarning(t *testing.T) {
	for _, c := range []struct {
		seen certificate
		want string // "": none
	}{
		{certificate{}, ""},
		{certificate{expiry: noon.Add(certificateWarnPeriod + time.Second)}, ""},
		{certificate{expiry: noon.Add(certificateWarnPeriod), subject: "client.pem"}, "client.pem is valid until 2026-12-07 12:00 UTC: renew it"},
		{certificate{expiry: noon, subject: "client.pem"}, "redlockd cannot reconnect to it: client.pem was valid until 2026-11-23 12:00 UTC"},
		{certificate{fault: errors.New("no such file")}, "redlockd cannot reconnect to it: no such file"},
	} {
		if got := c.seen.warning(noon); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q, want %q", c.seen, got, c.want)
		}
	}
}

// The log says that a certificate must be renewed only if that helps: not if its authority is unknown, or
// its name is wrong.
func TestLogOfCertificateFaults(t *testing.T) {
	for _, c := range []struct {
		fault error
		want  string
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "a certificate is not accepted"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "redis-c"}}, "a certificate is not accepted"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.NotAuthorizedToSign}}, "a certificate is not accepted"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}}, "a certificate must be renewed"},
	} {
		var log daemontest.Log
		certificates := &certificates{log: logging.New(&log, hclog.Info, logging.Text), byNode: map[string]certificate{}}
		certificates.note("a", certificate{fault: c.fault})
		if got := log.String(); !strings.Contains(got, "[WARN]  "+c.want+": node=a") {
			t.Errorf("%v: logged %q, want %q", c.fault, got, c.want)
		}
	}
}

// checkCertificate finds files that cannot be read without a connection.
func TestCertificateFilesAreGone(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "ca.pem")
	seen, ok := checkCertificate(t.Context(), &config.Node{Name: "a", Address: "127.0.0.1:1", TLS: &config.TLS{CAFile: gone}})
	if !ok || !errors.Is(seen.fault, os.ErrNotExist) {
		t.Errorf("%v, %v; want that %s does not exist", seen, ok, gone)
	}
}

// warn appends a warning to the warnings of a node without changing the array that other goroutines
// read. It adds none to a node that is down, whose reason says what is wrong.
func TestCertificateWarningOfNodes(t *testing.T) {
	bad := certificate{fault: errors.New("gone")}
	c := &certificates{byNode: map[string]certificate{"a": bad, "b": bad, "c": {}}}
	theirs := append(make([]string, 0, 4), "no persistence")
	nodes := []redlock.NodeStatus{
		{Name: "a", State: redlock.NodeReady, Warning: theirs},
		{Name: "b", State: redlock.NodeDown},
		{Name: "c", State: redlock.NodeReady},
	}
	c.addWarnings(nodes)
	if got := nodes[0].Warning; len(got) != 2 || got[0] != "no persistence" || !strings.Contains(got[1], "gone") {
		t.Errorf("warnings of a: %q", got)
	}
	if theirs[:2][1] != "" {
		t.Errorf("the array that others read was changed: %q", theirs[:2])
	}
	if len(nodes[1].Warning)+len(nodes[2].Warning) > 0 {
		t.Errorf("warnings of b and c: %q, %q; want none", nodes[1].Warning, nodes[2].Warning)
	}
}
