package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// The types of a CycloneDX 1.6 list: https://cyclonedx.org/docs/1.6/json/.
type (
	bom struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []choice   `json:"licenses,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	choice struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

const (
	mainModule  = "github.com/redlockd/redlockd"
	mainLicence = "Apache-2.0"
)

// cycloneDX returns the list of the programs' modules.
func cycloneDX(version, date string, programs []*program, modules []*module) ([]byte, error) {
	whole := component{Type: "application", Name: "redlockd", Version: version, Licenses: licensed(mainLicence)}
	whole.PURL = packageURL(mainModule, "v"+version)
	whole.Ref = whole.PURL
	list := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:     metadata{Timestamp: date, Component: whole},
		Dependencies: []dependency{{Ref: whole.Ref}},
	}
	for _, p := range programs {
		file := component{Type: "file", Ref: "file:" + p.name, Name: p.name, Version: version, Licenses: licensed(mainLicence),
			Hashes: []hash{{"SHA-256", p.sha256}}}
		list.Components = append(list.Components, file)
		list.Dependencies[0].DependsOn = append(list.Dependencies[0].DependsOn, file.Ref)
		list.Dependencies = append(list.Dependencies, dependency{file.Ref, p.dependsOn()})
	}
	for _, m := range modules {
		list.Components = append(list.Components, m.component())
	}
	text, err := json.MarshalIndent(list, "", "  ")
	return append(text, '\n'), err
}

// component has the checksum in the form of go.sum. That is a checksum of a list of checksums, not
// of a file, so it does not fit CycloneDX's hashes.
func (m *module) component() component {
	c := component{Type: "library", Ref: m.url(), Name: m.path, Version: m.version, Licenses: licensed(m.expression()), PURL: m.url()}
	if m.sum != "" {
		c.Properties = []property{{"go.sum", m.sum}}
	}
	return c
}

func (p *program) dependsOn() (refs []string) {
	for _, path := range slices.Sorted(maps.Keys(p.modules)) {
		refs = append(refs, p.modules[path].url())
	}
	return refs
}

func (m *module) url() string {
	if m.path == std {
		return packageURL(std, strings.TrimPrefix(m.version, "go"))
	}
	return packageURL(m.path, m.version)
}

func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func licensed(expression string) []choice { return []choice{{expression}} }
