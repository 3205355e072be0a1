package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"text/template"
)

// specification has the fields that gem build writes (Gem::Specification#to_yaml), in their order.
var specification = template.Must(template.New("").Parse(`--- !ruby/object:Gem::Specification
name: redlockd
version: !ruby/object:Gem::Version
  version: {{.Version}}
platform: ruby
authors:
- {{.Author}}
autorequire:
bindir: bin
cert_chain: []
date: {{.Date}} 00:00:00.000000000 Z
dependencies: []
description:
email:
executables: []
extensions: []
extra_rdoc_files: []
files:{{range .Files}}
- {{.}}{{end}}
homepage: {{.Homepage}}
licenses:
- {{.License}}
metadata:
  source_code_uri: {{.Source}}
  rubygems_mfa_required: 'true'
post_install_message:
rdoc_options: []
require_paths:
- lib
required_ruby_version: !ruby/object:Gem::Requirement
  requirements:
  - - ">="
    - !ruby/object:Gem::Version
      version: '{{.Ruby}}'
required_rubygems_version: !ruby/object:Gem::Requirement
  requirements:
  - - ">="
    - !ruby/object:Gem::Version
      version: '0'
requirements: []
rubygems_version: 3.3.15
signing_key:
specification_version: 4
summary: {{.Summary}}
test_files: []
`))

// gem returns a tar archive of the files, of their description, and of the checksums of both.
func (p *packer) gem() []byte {
	files := append(p.named("client/ruby", "README.md"), p.below("client/ruby", "lib", ".rb")...)
	parts := []file{{"data.tar.gz", p.gzip(p.tar("", files))}, {"metadata.gz", p.gzip(p.specification(files))}}
	var sums strings.Builder
	fmt.Fprintln(&sums, "---\nSHA256:")
	for _, part := range parts {
		fmt.Fprintf(&sums, "  %s: %x\n", part.name, sha256.Sum256(part.text))
	}
	return p.tar("", append(parts, file{"checksums.yaml.gz", p.gzip([]byte(sums.String()))}))
}

// specification describes the gem with the values of redlockd.gemspec.
func (p *packer) specification(files []file) []byte {
	gemspec := func(form string) string { return p.value("client/ruby/redlockd.gemspec", form) }
	var names []string
	for _, f := range inOrder(files) {
		names = append(names, f.name)
	}
	var b bytes.Buffer
	p.note(specification.Execute(&b, map[string]any{
		"Version": p.version, "Date": p.date.Format("2006-01-02"), "Files": names,
		"Author": gemspec(`authors = \["(.*)"\]`), "Homepage": gemspec(`homepage = "(.*)"`), "License": gemspec(`license = "(.*)"`),
		"Source": gemspec(`"source_code_uri" => "(.*?)"`), "Ruby": gemspec(`required_ruby_version = ">= (.*)"`), "Summary": gemspec(`summary = "(.*)"`),
	}))
	return b.Bytes()
}
