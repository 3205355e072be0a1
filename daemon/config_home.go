package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// configEveryBlock is a file with every block that there is, and no word in it.
const configEveryBlock = `
quorum {
  node "a" {
    tls {}
  }
}
lease {}
socket {}
access {
  rule "a" {}
}
limits {}
log {}
metrics {}
`

// elsewhere says in which block a word stands that does not belong where it was found, as
// the end of a sentence, or "".
func (r *configReader) elsewhere(word string) string {
	if r.homes == nil {
		r.homes = configHomes()
	}
	word = strings.ToLower(word)
	homes := r.homes[word]
	if len(homes) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s stands in the block %s", word, strings.Join(homes, " or "))
}

// configHomes are the blocks by the words that stand in them, as the reader asks for
// them. (What stands in none is known everywhere: it is listed where it is missing.)
func configHomes() map[string][]string {
	homes := map[string][]string{}
	r := newConfigReader("")
	r.visited = func(b *configBody) {
		if b.path == "" {
			return
		}
		for _, word := range slices.Concat(b.attrs, b.blocks) {
			homes[word] = append(homes[word], blockWord(b.path))
		}
	}
	file, _ := hclsyntax.ParseConfig([]byte(configEveryBlock), "", hcl.InitialPos)
	r.readConfig(file.Body.(*hclsyntax.Body))
	return homes
}

// blockWord is the last word of a block's path: tls of `node "a".tls`.
func blockWord(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	word, _, _ := strings.Cut(path, " ")
	return word
}
