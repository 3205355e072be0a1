package config

import (
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// everyBlock has every block that the reader reads.
func TestEveryBlock(t *testing.T) {
	var asked, visited []string
	r := newReader("")
	r.visited = func(b *section) {
		visited = append(visited, blockWord(b.path))
		asked = append(asked, b.blocks...)
	}
	file, diags := hclsyntax.ParseConfig([]byte(everyBlock), "", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	r.readConfig(file.Body.(*hclsyntax.Body))
	for _, word := range asked {
		if !slices.Contains(visited, word) {
			t.Errorf("everyBlock has no block %s", word)
		}
	}
	if len(asked) < 9 {
		t.Errorf("the reader read only the blocks %q", asked)
	}
}
