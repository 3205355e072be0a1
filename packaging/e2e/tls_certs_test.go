//go:build linux

package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(10000 * time.Hour),
	}, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs a certificate. An authority signs its own certificate.
func (a *authority) sign(template *x509.Certificate, key crypto.Signer) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// pair has the paths of a certificate and its key.
type pair struct{ cert, key string }

// issue writes a certificate for name, valid until then, to dir/file.pem and .key.
func (a *authority) issue(dir, file, name string, until time.Time) pair {
	a.t.Helper()
	return a.issueTo(newKey(a.t), dir, file, name, until)
}

// issueTo is issue with a key of another kind.
func (a *authority) issueTo(key crypto.Signer, dir, file, name string, until time.Time) pair {
	a.t.Helper()
	cert := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	p := pair{filepath.Join(dir, file+".pem"), filepath.Join(dir, file+".key")}
	writePEM(a.t, p.cert, "CERTIFICATE", cert.Raw)
	writePEM(a.t, p.key, "PRIVATE KEY", der)
	return p
}

// write writes the authority's own certificate.
func (a *authority) write(file string) string {
	a.t.Helper()
	writePEM(a.t, file, "CERTIFICATE", a.cert.Raw)
	return file
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	writeFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// tlsPort returns a port for a server with TLS. It is free on all loopback addresses that the tests
// use.
func tlsPort(t *testing.T) string {
	t.Helper()
	port, err := redlocktest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// withTLS lets a server speak TLS on the port. Clients need a certificate of the authority.
func withTLS(port string, server pair, ca string) redlocktest.Option {
	return redlocktest.Args("--tls-port", port, "--bind", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
		"--tls-cert-file", server.cert, "--tls-key-file", server.key, "--tls-ca-cert-file", ca, "--tls-auth-clients", "yes")
}
