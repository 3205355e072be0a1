package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// certificates are those of the nodes of one run, which all have the same one.
type certificates struct{ ca, key, good, expired string } // paths

const nodeDNSName = "nodes"

// newCertificates makes an authority, a key, a valid certificate and an expired one.
func newCertificates(dir string) (*certificates, error) {
	c := &certificates{ca: filepath.Join(dir, "ca.pem"), key: filepath.Join(dir, "node.key"), good: filepath.Join(dir, "node.pem"), expired: filepath.Join(dir, "expired.pem")}
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	start := time.Now().Add(-48 * time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nemesis"}, NotBefore: start, NotAfter: start.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	node := func(serial int64, end time.Time) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: nodeDNSName}, DNSNames: []string{nodeDNSName},
			NotBefore: start, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
	}
	for path, one := range map[string]struct {
		template *x509.Certificate
		public   *ecdsa.PublicKey
	}{
		c.ca:      {ca, &caKey.PublicKey},
		c.good:    {node(2, ca.NotAfter), &key.PublicKey},
		c.expired: {node(3, time.Now().Add(-time.Hour)), &key.PublicKey},
	} {
		der, err := x509.CreateCertificate(rand.Reader, one.template, ca, one.public, caKey)
		if err != nil {
			return nil, err
		}
		if err := writePEM(path, "CERTIFICATE", der); err != nil {
			return nil, err
		}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return c, writePEM(c.key, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// arguments are those of a redis-server that also serves TLS on a port.
func (c *certificates) arguments(port int) []string {
	return []string{"--tls-port", strconv.Itoa(port), "--tls-cert-file", c.good, "--tls-key-file", c.key, "--tls-ca-cert-file", c.ca, "--tls-auth-clients", "no"}
}

// block is the config of a daemon for such a node.
func (c *certificates) block() string {
	return fmt.Sprintf("    tls {\n      ca_file = %q\n      server_name = %q\n    }\n", c.ca, nodeDNSName)
}

// expireCertificate gives a node an expired certificate and breaks its connections, so that the
// daemons see it. It counts the broken connections.
func (f *injector) expireCertificate(number int) (int, error) {
	certs := f.world.certificates
	db := f.redis(number)
	defer db.Close()
	ctx := context.Background()
	if err := db.ConfigSet(ctx, "tls-cert-file", certs.expired).Err(); err != nil {
		return 0, err
	}
	broken := int64(0)
	for _, kind := range []string{"normal", "pubsub"} {
		n, err := db.ClientKillByFilter(ctx, "TYPE", kind, "SKIPME", "yes").Result()
		if err != nil {
			return 0, err
		}
		broken += n
	}
	f.last(2 * time.Second)
	return int(broken), db.ConfigSet(ctx, "tls-cert-file", certs.good).Err()
}
