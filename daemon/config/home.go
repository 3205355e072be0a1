package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// everyBlock is a file with every block that there is, and no word in it.
const everyBlock = `
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
func (r *reader) otherBlock(word string) string {
	if r.blocksOf == nil {
		r.blocksOf = blocksOfWords()
	}
	word = strings.ToLower(word)
	homes := r.blocksOf[word]
	if len(homes) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s stands in the block %s", word, strings.Join(homes, " or "))
}

// blocksOfWords are the blocks by the words that stand in them, as the reader asks for
// them. (What stands in none is known everywhere: it is listed where it is missing.)
func blocksOfWords() map[string][]string {
	homes := map[string][]string{}
	r := newReader("")
	r.visited = func(b *section) {
		if b.path == "" {
			return
		}
		for _, word := range slices.Concat(b.attrs, b.blocks) {
			homes[word] = append(homes[word], blockWord(b.path))
		}
	}
	file, _ := hclsyntax.ParseConfig([]byte(everyBlock), "", hcl.InitialPos)
	r.readConfig(file.Body.(*hclsyntax.Body))
	return homes
}

// blockWord is the last word of a block's path: tls of `node "a".tls`.
func blockWord(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	word, _, _ := strings.Cut(path, " ")
	return word
}
