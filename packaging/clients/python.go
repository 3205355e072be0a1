package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

const pyproject = "client/python/pyproject.toml"

// wheel returns a wheel of pure Python (packaging.python.org, "Binary distribution format").
func (p *packer) wheel() []byte {
	info := "redlockd-" + p.version + ".dist-info/"
	all := append(p.modules(), file{info + "METADATA", p.metadata()}, file{info + "LICENSE", p.read("LICENSE")},
		file{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: redlockd\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})
	var record strings.Builder
	for _, f := range inOrder(all) {
		sum := sha256.Sum256(f.text)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	return p.zip(append(all, file{info + "RECORD", []byte(record.String())}))
}

// sdist returns a source distribution, of which pip can build a wheel.
func (p *packer) sdist() []byte {
	all := append(p.named("client/python", "pyproject.toml", "README.md"), p.modules()...)
	return p.gzip(p.tar("redlockd-"+p.version, append(all, file{"PKG-INFO", p.metadata()})))
}

func (p *packer) modules() []file {
	return p.below("client/python", "redlockd", ".py", "/py.typed")
}

// metadata returns the core metadata, version 2.1, with the values of pyproject.toml.
func (p *packer) metadata() []byte {
	project := func(form string) string { return p.value(pyproject, `(?m)^`+form+`$`) }
	var b strings.Builder
	fmt.Fprintf(&b, "Metadata-Version: 2.1\nName: redlockd\nVersion: %s\nSummary: %s\n", p.version, project(`description = "(.*)"`))
	fmt.Fprintf(&b, "License: %s\nLicense-File: LICENSE\n", project(`license = \{ text = "(.*)" \}`))
	fmt.Fprintf(&b, "Project-URL: Documentation, %s\n", project(`Documentation = "(.*)"`))
	for _, classifier := range regexp.MustCompile(`"(.*?)"`).FindAllStringSubmatch(project(`classifiers = \[(.*)\]`), -1) {
		fmt.Fprintf(&b, "Classifier: %s\n", classifier[1])
	}
	fmt.Fprintf(&b, "Requires-Python: %s\nDescription-Content-Type: text/markdown\n\n%s", project(`requires-python = "(.*)"`), p.read("client/python/README.md"))
	return []byte(b.String())
}
